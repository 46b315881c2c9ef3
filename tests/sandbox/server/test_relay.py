"""The relay of these tests leaves nothing open behind it, whatever it is at when it ends."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from tests.support.servers.relay import Relay
from tests.support.waiting import until


def test_a_client_that_still_waits_when_the_relay_ends_leaves_no_connection_to_the_server() -> None:
    others = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        with Relay(f"http://127.0.0.1:{server.getsockname()[1]}") as relay:
            relay.cut()
            client.connect(("127.0.0.1", int(relay.url.rpartition(":")[2])))
            # Those that are about to start are listed, too, and nobody can join them.
            until(lambda: sum(t.is_alive() for t in set(threading.enumerate()) - others) == 2)
            threads = set(threading.enumerate()) - others
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        server.settimeout(0)
        with suppress(BlockingIOError):
            connection, _ = server.accept()
            with connection:
                connection.settimeout(60)
                assert connection.recv(1) == b""
