"""Every request that can evict is preceded by the whole last look, whatever became of the one before it."""

from __future__ import annotations

import builtins
import http.client
import socket
import ssl
import threading
import time as real
from collections.abc import Callable, Iterator
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, cast

import kubernetes.client.exceptions
import pytest
import urllib3.exceptions
from kubernetes.client.rest import RESTClientObject

from rebalancer.kube import evictor
from rebalancer.kube.config import ClusterOptions, Loaded
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import CacheNotReadyError, ConfigurationError, KubeError, Sockets
from rebalancer.kube.evictor import Evictor, LiveEvictor
from rebalancer.model.pod import Pod
from rebalancer.model.reason import Moment, Reason
from rebalancer.policy.annotations import PAUSE
from rebalancer.policy.history.ledger import Fate
from rebalancer.runtime.cycle import gates
from rebalancer.runtime.cycle.carrying_out import CycleLimits
from rebalancer.runtime.cycle.clock import SystemClock
from rebalancer.runtime.cycle.gates import Permission
from rebalancer.runtime.cycle.replacements import SettleLimits
from rebalancer.runtime.live.configured import LiveOptions
from rebalancer.runtime.live.once import run_once
from tests.support.build import deployment, node, objects, pdb
from tests.support.runs.machine import BRAKE
from tests.support.runs.one_cycle import Run
from tests.support.runs.one_eviction import WEB, victim
from tests.support.sandbox import ApiServer, Cluster, Cut, Delay, Reply
from tests.support.sandbox.faults import Action
from tests.support.servers.api import FakeTime, connected, evictor_of, objects_of
from tests.support.waiting import until

CLUSTER = (
    node("a-0").zone("a").cpu(8),
    node("b-0").zone("b").cpu(8),
    deployment("web").spread("zone", 1).requests(cpu="1").placed({"a-0": 3, "b-0": 1}),
    pdb("web", {"app": "web"}, max_unavailable=1),
)
STALE = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "code": 429,
    "reason": "TooManyRequests",
    "message": "Cannot evict pod as it would violate the pod's disruption budget.",
    "details": {"causes": [{"reason": "DisruptionBudget", "message": "web is still being processed"}],
                "retryAfterSeconds": 10},
}  # fmt: skip

REFUSED = urllib3.exceptions.NewConnectionError(cast(Any, None), "refused")
LONG = TimeoutError("a new connection, which took its time")
TARDY = 1.5
"""Seconds that an API server may take to say that it does not know who asks, or a plugin to log in again: a
look is worth nothing any more by then."""


class Answer(NamedTuple):
    """What becomes of the first request to evict: what the server does with it, or the error that sending it
    raises. `login`: seconds that the credentials plugin then takes, None where there is none."""

    name: str
    becomes: Action | Exception
    login: float | None = None

    def __str__(self) -> str:
        return self.name


ANSWERS = [
    Answer("429 of a stale budget, Retry-After 10 s", Reply(429, STALE, {"Retry-After": "10"})),
    Answer("429 of flow control, Retry-After 60 s", Reply(429, None, {"Retry-After": "60"})),
    Answer("401", Reply(401, after=0.5)),
    Answer("401 after a slow authentication", Reply(401, after=TARDY)),
    Answer("401, a plugin", Reply(401, after=0.5), login=0.0),
    Answer("401, a plugin that takes its time", Reply(401, after=0.5), login=TARDY),
    Answer("409", Reply(409)),
    Answer("500", Reply(500)),
    Answer("nonsense", Reply(502, b"<html>bad gateway</html>")),
    Answer("a cut connection", Cut("before")),
    Answer("a refused connection", REFUSED),
    Answer("a connection that took four seconds", LONG),
    Answer("silence", Delay(float("inf"))),
]
every_answer = pytest.mark.parametrize("answer", ANSWERS, ids=str)


def cordoned(server: ApiServer) -> None:
    server.store.modify("Node", "b-0", None, lambda o: o["spec"].update(unschedulable=True))


def filled(server: ApiServer) -> None:
    """Somebody else's pod takes the room of the only destination."""
    server.store.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "batch", "namespace": "default", "labels": {"app": "batch"}},
            "spec": {
                "nodeName": "b-0",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "7"}}}],
            },
            "status": {"phase": "Running"},
        }
    )


def scaled(server: ApiServer) -> None:
    for kind, name in (
        ("Deployment", "web"),
        ("ReplicaSet", server.store.list("ReplicaSet")[0]["metadata"]["name"]),
    ):
        server.store.modify(kind, name, "default", lambda o: o["spec"].update(replicas=3))


def exhausted(server: ApiServer) -> None:
    server.store.modify("PodDisruptionBudget", "web", "default", lambda o: o["spec"].update(maxUnavailable=0))


def protected(server: ApiServer) -> None:
    for pod in server.store.list("Pod"):
        server.store.modify(
            "Pod",
            pod["metadata"]["name"],
            "default",
            lambda o: o["metadata"].update(annotations={"rebalancer.io/evict": "false"}),
        )


def paused(server: ApiServer) -> None:
    server.store.modify(
        "Namespace", "default", None, lambda o: o["metadata"].update(annotations={PAUSE: "incident"})
    )


CHANGES: list[Callable[[ApiServer], None]] = [cordoned, filled, scaled, exhausted, protected, paused]


class Meanwhile:
    """A server that gives an answer to the first request to evict, and a change of the cluster after that
    request came and before anything is sent again: while the server or a plugin takes its time, else in a
    wait of the evictor's."""

    def __init__(
        self,
        server: ApiServer,
        answer: Answer,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        change: Callable[[ApiServer], object] = lambda _: None,
    ) -> None:
        self._server, self._change = server, change
        self._lock = threading.Lock()
        self._asked: Callable[[], bool] = lambda: False
        self.time = FakeTime()
        self.time.during = lambda _: self.happen() if self._asked() else None
        self.done = False
        if answer.becomes is LONG:
            self._asked = connects_slowly(monkeypatch, lambda: self.time.wait(4.0))
            return
        if isinstance(answer.becomes, Exception):
            self._asked = raised_once(monkeypatch, answer.becomes)
            return
        fault = server.faults.add(answer.becomes, subresource="eviction", times=1)
        self._asked = lambda: fault.hits > 0
        if isinstance(answer.becomes, Reply) and answer.becomes.after:
            threading.Thread(target=self._watch, args=[folder], daemon=True).start()
        if isinstance(answer.becomes, Delay):
            monkeypatch.setattr(evictor, "_READ_TIMEOUT", 0.3)
        if answer.login is not None:
            user = plugin(folder, server.admin_token, answer.login)
            write = server.kubeconfig
            monkeypatch.setattr(server, "kubeconfig", lambda path, **_: write(path, user=user))

    def _watch(self, folder: Path) -> None:
        until(self._asked)
        (folder / "refused").touch()
        self.happen()

    def happen(self) -> None:
        with self._lock:
            if not self.done:
                self.done = True
                self._change(self._server)
                real.sleep(0.3)  # the watch tells of it


def raised_once(monkeypatch: pytest.MonkeyPatch, error: Exception) -> Callable[[], bool]:
    """The first request to evict ends in this error before it is sent; whether it has."""
    send, raised = RESTClientObject.request, list[bool]()

    def request(self: RESTClientObject, method: str, url: str, **more: Any) -> Any:
        if "/eviction" in url and not raised:
            raised.append(True)
            raise error
        return send(self, method, url, **more)

    monkeypatch.setattr(RESTClientObject, "request", request)
    return lambda: bool(raised)


def connects_slowly(monkeypatch: pytest.MonkeyPatch, slowly: Callable[[], object]) -> Callable[[], bool]:
    """The first request to evict needs a new connection; whether it has been sent for."""
    send, opened, threads = RESTClientObject.request, Sockets.opened, list[int]()

    def request(self: RESTClientObject, method: str, url: str, **more: Any) -> Any:
        if "/eviction" in url and not threads:
            threads.append(threading.get_ident())
            self.pool_manager.clear()
        return send(self, method, url, **more)

    def connected_slowly(self: Sockets, sock: socket.socket) -> None:
        opened(self, sock)
        if threads == [threading.get_ident()]:
            threads.append(0)
            slowly()

    monkeypatch.setattr(RESTClientObject, "request", request)
    monkeypatch.setattr(Sockets, "opened", connected_slowly)
    return lambda: bool(threads)


def plugin(folder: Path, token: str, seconds: float) -> dict[str, Any]:
    """A credentials plugin that is quick at first, and takes this long to log in again."""
    path = folder / "login"
    path.write_text(
        f"""#!/bin/sh
[ -e {folder}/refused ] && sleep {seconds}
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
echo '"status": {{"token": "{token}"}}}}'
"""
    )
    path.chmod(0o755)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(path),
            "interactiveMode": "Never",
        }
    }


@pytest.mark.parametrize("change", CHANGES, ids=[c.__name__ for c in CHANGES])
@every_answer
def test_what_changes_while_an_eviction_waits_for_its_second_try_stops_it(
    answer: Answer, change: Callable[[ApiServer], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ApiServer(objects(*CLUSTER), bookmark_every=0.1) as server:
        meanwhile = Meanwhile(server, answer, tmp_path, monkeypatch, change)
        run = Run(server, time=meanwhile.time)
    assert meanwhile.done
    assert run.evictions() == 0
    assert {o.status for o in run.report.outcomes} <= {Fate.SKIPPED, Fate.FAILED}


@every_answer
def test_a_second_try_in_an_unchanged_cluster_goes_out_after_a_whole_look(
    answer: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ApiServer(objects(*CLUSTER), bookmark_every=0.1) as server:
        meanwhile = Meanwhile(server, answer, tmp_path, monkeypatch)
        run = Run(server, time=meanwhile.time)
    assert run.evictions() == 1
    assert run.zones() == [2, 2]
    for asked in looks(run):
        assert {"pods", "replicasets", "deployments", "poddisruptionbudgets"} <= asked


def looks(run: Run) -> Iterator[set[str]]:
    """What was read since the eviction request before, for each of them."""
    asked: set[str] = set()
    for access in run.server.accesses:
        if access.subresource == "eviction":
            yield asked
            asked = set()
        elif access.verb in ("get", "list"):
            asked.add(access.resource)


MODULES = (builtins, socket, ssl, http.client, urllib3.exceptions, kubernetes.client.exceptions)
NOT_OF_A_REQUEST = {KubeError: "the root, never raised itself", CacheNotReadyError: "the watch cache's own"}


class Sender:
    """Evicts one pod in one of the ways there are. `sent`: how many requests that can evict there have been.
    `errors`: how those ended that came to nothing; `again`: after which of them another one was sent."""

    def __init__(self, server: ApiServer, connection: Connection, how: str) -> None:
        self._time = FakeTime()
        self._pod = victim(objects_of(connection, self._time))
        self._evictor: Evictor = evictor_of(connection, self._time, dry_run=how == "its dry run")
        self.server, self.connection = server, connection
        self.sent = self._arrived
        self.errors, self.again = set[str](), set[str]()

    def _arrived(self) -> int:
        return sum("/eviction" in a.path and a.verb in ("create", "patch") for a in self.server.accesses)

    def evict(self, action: Action | None = None) -> None:
        """Until it is given up. Fails if a request went out without a question right before it."""
        self.server.faults.clear()
        if action is not None:
            self.server.faults.add(action, path="/eviction")
        before, asked_at = self.sent(), list[int]()

        def may_not() -> Reason | None:
            asked_at.append(self.sent() - before)
            return None

        try:
            ended = self._evictor.evict(self._pod, may_not=may_not)
        except Exception as e:
            if isinstance(e, KubeError):
                raise
            # What the client does not know ends the cycle: it is not sent again either.
        else:
            errors = [f.error for f in ended.failed]
            self.errors |= {*errors}
            self.again |= {*errors[: self.sent() - before - 1]}
        assert asked_at == list(range(self.sent() - before))
        assert 1 <= len(asked_at) <= 6


@pytest.fixture(params=["the Eviction API", "its dry run"])
def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sender]:
    monkeypatch.setattr(evictor, "_READ_TIMEOUT", 0.3)
    with ApiServer(objects(*WEB)) as server, connected(server) as connection:
        yield Sender(server, connection, request.param)


def every_answer_refuses(sender: Sender) -> None:
    """Every status that there is, from the API server and from something in front of it."""
    for code in (c for c in HTTPStatus if c >= 200):
        for body in (None, b"<html>no</html>") if code not in (204, 304) else (b"",):
            sender.evict(Reply(code, body, {"Location": "/eviction"}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sender.connection, "_source", refuse)
        sender.evict(Reply(401))


def refuse() -> Loaded:
    raise ConfigurationError("the plugin failed")


def every_request_fails(sender: Sender) -> None:
    """Every exception that sockets, TLS, HTTP and the clients may raise instead of an answer."""
    found = {v for m in MODULES for v in vars(m).values() if isinstance(v, type)} - {ExceptionGroup}
    for kind in found:
        if issubclass(kind, Exception):
            fails(sender, kind.__new__(kind))


def fails(sender: Sender, error: Exception) -> None:
    sent, send, arrived = list[str](), RESTClientObject.request, sender.sent

    def request(self: RESTClientObject, method: str, url: str, **more: Any) -> Any:
        if "/eviction" in url and method in ("POST", "PATCH"):
            sent.append(url)
            raise error
        return send(self, method, url, **more)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RESTClientObject, "request", request)
        patched.setattr(sender, "sent", lambda: len(sent))
        sender.evict()
    assert sent
    assert sender.sent == arrived


def every_error() -> set[type[KubeError]]:
    """The tree of `rebalancer.kube.errors`."""
    found, todo = set[type[KubeError]](), [KubeError]
    while todo:
        found.add(kind := todo.pop())
        todo += [k for k in kind.__subclasses__() if k.__module__ == kind.__module__]
    return found


def test_whatever_becomes_of_a_request_the_next_one_is_asked_for(sender: Sender) -> None:
    """A new class of errors fails here until something brings it about, and one after which something is sent
    again until it is among the answers above."""
    every_answer_refuses(sender)
    every_request_fails(sender)
    assert sender.errors == {kind.__name__ for kind in every_error() - NOT_OF_A_REQUEST.keys()}
    again, sender.errors = sender.again, set()
    for answer in ANSWERS:
        match answer.becomes:
            case Exception() as error:
                fails(sender, error)
            case Reply() as reply:
                sender.evict(replace(reply, after=0.0))
            case action:
                sender.evict(action)
    assert again <= sender.errors


@pytest.fixture
def ages(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds from the beginning of the look to each request that can evict, by the clock on the wall."""
    began, found = [0.0], list[float]()
    ask, post = Permission._ask, LiveEvictor._post

    def asked(self: Permission, moment: Moment) -> Reason | None:
        began[0] = real.monotonic()
        return ask(self, moment)

    def posted(self: LiveEvictor, pod: Pod, reason: str, fresh: Callable[[], bool]) -> int:
        found.append(real.monotonic() - began[0])
        return post(self, pod, reason, fresh)

    monkeypatch.setattr(Permission, "_ask", asked)
    monkeypatch.setattr(LiveEvictor, "_post", posted)
    return found


SLOW: list[tuple[str, dict[str, Any], int]] = [
    ("at once", {"times": 0}, 1),
    ("slowly, once", {"times": 1}, 1),
    ("slowly, always", {}, 0),
]


@pytest.mark.parametrize(("how", "evictions"), [s[1:] for s in SLOW], ids=[s[0] for s in SLOW])
def test_no_request_is_sent_more_than_a_second_after_the_look_began(
    how: dict[str, Any], evictions: int, ages: list[float], tmp_path: Path
) -> None:
    with Cluster(objects(*CLUSTER), ready_after=0.05, grace=0.05) as cluster:
        cluster.settle()
        cluster.faults.add(Delay(1.1), verb="get", resource="deployments", **how)
        connection = Connection(ClusterOptions(kubeconfig=str(cluster.kubeconfig(tmp_path / "config"))))
        options = LiveOptions(execute=True, settle=SettleLimits(poll=0.05), limits=CycleLimits(max_replans=0))
        report = run_once(connection, options, clock=SystemClock())
        connection.close()
    assert report.evicted == len(ages) == evictions
    assert all(age < 1.0 for age in ages)
    if not evictions:
        assert "4 times in a row" in report.message


def test_what_is_read_for_a_look_is_read_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read takes 0.8 s, and a look no more than twice that: pod, owner, namespace and brake."""
    monkeypatch.setattr(gates, "FRESH", 1.6)
    monkeypatch.setattr(gates, "FRESH", 1.6)
    with Cluster(objects(*CLUSTER), ready_after=0.05, grace=0.05) as cluster:
        cluster.settle()
        cluster.faults.add(Delay(0.8), verb="get")
        connection = Connection(ClusterOptions(kubeconfig=str(cluster.kubeconfig(tmp_path / "config"))))
        options = LiveOptions(
            execute=True,
            brake=BRAKE,
            settle=SettleLimits(poll=0.05),
            limits=CycleLimits(max_replans=0),
        )
        report = run_once(connection, options, clock=SystemClock())
        connection.close()
    assert report.evicted == 1, report.message
