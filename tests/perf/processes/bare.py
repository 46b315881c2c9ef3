"""The bare transfer: one list of all pods with resourceVersion=0 from a socket to nowhere."""

from __future__ import annotations

import socket
import sys
from urllib.parse import urlsplit

_PIECE = 1 << 20


def main() -> None:
    """`python -m tests.perf.processes.bare ADDRESS`: prints the bytes that came."""
    url = urlsplit(sys.argv[1])
    piece = bytearray(_PIECE)
    count = 0
    last = b""
    with socket.create_connection((str(url.hostname), int(url.port or 80))) as sock:
        sock.sendall(
            b"GET /api/v1/pods?resourceVersion=0 HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"
        )
        while received := sock.recv_into(piece):
            count += received
            last = bytes(piece[max(0, received - 8) : received])
    if not last.endswith(b"0\r\n\r\n"):
        raise SystemExit("the list was cut")
    print(count)


if __name__ == "__main__":
    main()
