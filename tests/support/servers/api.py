"""A connection to an embedded API server, and time that passes without waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Backoff, Connection
from rebalancer.kube.evictor import LiveEvictor
from rebalancer.kube.reading import Objects
from tests.support.sandbox import ApiServer

QUICK = Backoff(tries=4, first=0.1, cap=1.0)


class FakeTime:
    """A clock that only `wait` and `linger` advance; `stop` makes every wait say so. `apart`: by how much
    another clock is ahead of it.

    `during(seconds)` is called before each wait, to let something happen meanwhile.
    """

    def __init__(self, at: float = 1_000_000.0, apart: float = 0.0) -> None:
        self.at = at
        self.apart = apart
        self.stop = False
        self.waits: list[float] = []
        self.during: Callable[[float], object] = lambda _: None

    def now(self) -> float:
        return self.at

    monotonic = now

    def latest(self) -> float:
        return self.at + self.apart

    def doubt(self) -> str:
        return ""

    def wait(self, seconds: float) -> bool:
        if not self.stop:
            self.linger(max(0.0, seconds))
        return self.stop

    def stopping(self) -> bool:
        return self.stop

    def linger(self, seconds: float) -> bool:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self.waits.append(seconds)
        self.during(seconds)
        self.at += seconds
        return False


@contextmanager
def connected(
    server: ApiServer, *, token: str | None = None, options: ClusterOptions | None = None
) -> Iterator[Connection]:
    """A connection as the command line makes it, through a kubeconfig file."""
    with TemporaryDirectory() as folder:
        path = server.kubeconfig(Path(folder) / "config", token=token)
        o = options or ClusterOptions(connect_timeout=2.0, read_timeout=2.0)
        connection = Connection(
            ClusterOptions(
                kubeconfig=str(path),
                impersonate=o.impersonate,
                impersonate_groups=o.impersonate_groups,
                connect_timeout=o.connect_timeout,
                read_timeout=o.read_timeout,
                gzip=o.gzip,
            )
        )
        try:
            yield connection
        finally:
            connection.close()


def objects_of(connection: Connection, time: FakeTime) -> Objects:
    """Reads single objects, without really waiting."""
    return Objects(connection, wait=time.wait, backoff=QUICK)


def evictor_of(connection: Connection, time: FakeTime, *, dry_run: bool = False) -> LiveEvictor:
    """Evicts, without really waiting."""
    return LiveEvictor(
        connection,
        objects_of(connection, time).pod,
        wait=time.wait,
        linger=time.linger,
        monotonic=time.monotonic,
        backoff=QUICK,
        dry_run=dry_run,
    )
