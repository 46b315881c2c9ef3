"""A process that stands for election: `python -m tests.support.processes.electing KUBECONFIG IDENTITY`.

Prints a line for every time it found itself leading: the machine's monotonic clock just before the check.
Ends when its input does. The times of all processes of one machine can be compared.
"""

from __future__ import annotations

import select
import sys
import time

from rebalancer.kube.config import ClusterOptions
from rebalancer.kube.connection import Connection
from rebalancer.kube.election import ElectionOptions, Elector


def main(kubeconfig: str, identity: str) -> None:
    options = ClusterOptions(kubeconfig=kubeconfig, connect_timeout=1.0, read_timeout=1.0)
    times = ElectionOptions(duration=1.0, renew_deadline=0.7, retry=0.1)
    elector = Elector(Connection(options), "default", "rebalancer", identity=identity, options=times).start()
    while not select.select([sys.stdin], [], [], 0.005)[0]:
        at = time.monotonic()
        if elector.still_leading():
            print(at, flush=True)
    elector.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
