"""A process that only watches: `python -m tests.support.processes.churning KUBECONFIG`.

For every line of its input it prints one: resident memory in MiB, pods, parts that its pod decoder remembers,
and the newest version among its pods. Ends when its input does.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.watch import reflector
from rebalancer.kube.watch.cache import WatchCache
from rebalancer.model.decode import Decoder

_PAGE = 4096


def main(kubeconfig: str) -> None:
    decoders: list[Decoder] = []

    def remembered() -> Decoder:
        decoders.append(Decoder())
        return decoders[-1]

    vars(reflector)["Decoder"] = remembered
    cache = WatchCache(Connection(ClusterOptions(kubeconfig=kubeconfig)), kinds=frozenset({"Pod", "Node"}))
    cache.start()
    assert cache.wait_ready(20)
    for _ in sys.stdin:
        pods = cache.snapshot(0.0).pods
        gc.collect()
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE / 2**20
        newest = max(int(p.resource_version) for p in pods)
        print(resident, len(pods), sum(d.entries for d in decoders), newest, flush=True)
    cache.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
