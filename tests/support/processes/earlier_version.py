"""The command line with what an earlier version knew of the ledger: as far as the other one can tell, it is
that version."""

from __future__ import annotations

import json

from rebalancer.cli.entry import main
from rebalancer.kube import config_maps as stored
from rebalancer.policy.history.ledger import Ledger
from rebalancer.policy.history.ledger_json import decode, encode
from tests.support.processes.earlier_ledger import as_a2894a3_knows


def _encode(ledger: Ledger) -> bytes:
    return json.dumps(as_a2894a3_knows(encode(ledger))).encode()


def _decode(data: bytes | str, *_: object) -> Ledger:
    return decode(json.dumps(as_a2894a3_knows(data)))


if __name__ == "__main__":
    for name, function in {"encode": _encode, "decode": _decode}.items():
        setattr(stored, name, function)
    main()
