"""Reaching a cluster: kubeconfig, identity, credentials that expire, and errors that say what to do."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from rebalancer import __version__
from rebalancer.kube import config
from rebalancer.kube.config import ClusterOptions, load
from rebalancer.kube.connection import Connection
from rebalancer.kube.errors import (
    ConfigurationError,
    ForbiddenError,
    ResponseError,
    Target,
    TransportError,
    UnauthorizedError,
)
from rebalancer.kube.resources import RESOURCES
from tests.support.sandbox import ApiServer, Cut, Delay, Reply
from tests.support.sandbox.authority import User
from tests.support.servers.api import connected

NODES = Target("list", RESOURCES["Node"])


def nodes(connection: Connection) -> int:
    return connection.request("GET", "/api/v1/nodes", NODES).code


def kubeconfig(path: Path, server: str, user: dict[str, Any], **cluster: Any) -> ClusterOptions:
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "one",
                "clusters": [{"name": "k", "cluster": {"server": server, **cluster}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [
                    {"name": "one", "context": {"cluster": "k", "user": "u", "namespace": "shop"}},
                    {"name": "two", "context": {"cluster": "k", "user": "u"}},
                ],
            }
        )
    )
    return ClusterOptions(kubeconfig=str(path), connect_timeout=0.5, read_timeout=0.5)


def plugin(path: Path, *tokens: str) -> dict[str, Any]:
    """An exec plugin that hands out these tokens in turn, the last one for ever."""
    (path.parent / "tokens").write_text("\n".join(tokens) + "\n")
    path.write_text(
        f"""#!/bin/sh
cd {path.parent}
token=$(head -n 1 tokens)
[ "$(wc -l < tokens)" -gt 1 ] && sed -i 1d tokens
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
echo '"status": {{"token": "'$token'"}}}}'
"""
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(path),
            "interactiveMode": "Never",
        }
    }


def test_the_context_gives_server_and_namespace(tmp_path: Path) -> None:
    options = kubeconfig(tmp_path / "c", "http://127.0.0.1:1", {})
    one, two = Connection(options), Connection(ClusterOptions(kubeconfig=options.kubeconfig, context="two"))
    assert (one.context, one.namespace) == ("one", "shop")
    assert (two.context, two.namespace) == ("two", "default")


def test_a_context_that_does_not_exist_is_named(tmp_path: Path) -> None:
    options = kubeconfig(tmp_path / "c", "http://127.0.0.1:1", {})
    with pytest.raises(ConfigurationError, match=r"has no context three; --context takes one of: one"):
        Connection(ClusterOptions(kubeconfig=options.kubeconfig, context="three"))


def test_a_kubeconfig_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere does not exist; see --kubeconfig"):
        Connection(ClusterOptions(kubeconfig=str(tmp_path / "nowhere")))


def test_a_kubeconfig_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    (tmp_path / "c").write_text("{: nonsense")
    with pytest.raises(ConfigurationError, match="kubectl config view"):
        Connection(ClusterOptions(kubeconfig=str(tmp_path / "c")))


def test_without_any_cluster_the_error_offers_snapshot_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--snapshot FILE"):
        load(ClusterOptions(), {"HOME": str(tmp_path)})


def test_kubeconfig_wins_over_the_service_account(tmp_path: Path) -> None:
    options = kubeconfig(tmp_path / "c", "http://127.0.0.1:1", {})
    env = {
        "KUBECONFIG": options.kubeconfig,
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    assert load(ClusterOptions(), env).context == "one"


def test_a_pod_without_a_service_account_says_so(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        load(ClusterOptions(), env)


def test_a_refused_connection_names_server_and_context(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    connection = Connection(kubeconfig(tmp_path / "c", f"http://127.0.0.1:{port}", {}))
    with pytest.raises(TransportError, match=rf"127.0.0.1:{port}, context one: connection refused") as e:
        nodes(connection)
    assert not e.value.sent
    assert "kubectl --context one get --raw /readyz" in e.value.remedy
    assert e.value.__cause__ is not None


def test_a_name_that_does_not_resolve_was_not_reached(tmp_path: Path) -> None:
    connection = Connection(kubeconfig(tmp_path / "c", "http://no.such.host.invalid:1", {}))
    with pytest.raises(TransportError, match="does not resolve") as e:
        nodes(connection)
    assert not e.value.sent


def test_a_proxy_that_is_not_there_is_blamed_itself(tmp_path: Path) -> None:
    options = kubeconfig(tmp_path / "c", "https://10.1.2.3", {}, **{"proxy-url": "http://127.0.0.1:9"})
    with pytest.raises(TransportError, match="proxy") as e:
        nodes(Connection(options))
    assert not e.value.sent
    assert "proxy-url" in e.value.remedy


def test_silence_may_have_been_heard(tmp_path: Path) -> None:
    with ApiServer() as server:
        server.faults.add(Delay(5))
        connection = Connection(kubeconfig(tmp_path / "c", server.url, {}))
        with pytest.raises(TransportError, match=r"no answer within 0.5 s") as e:
            nodes(connection)
        assert e.value.sent
        connection.close()


def test_what_is_still_on_its_way_of_a_request_without_an_answer_is_dropped(tmp_path: Path) -> None:
    """A network that comes back would deliver it minutes later, whoever has said no by then."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        connection = Connection(kubeconfig(tmp_path / "c", url, {}))
        with pytest.raises(TransportError, match="no answer"):
            connection.request("POST", "/x", NODES, body={}, read_timeout=0.3, once=True, fresh=lambda: True)
        heard, _ = listening.accept()
        with heard, pytest.raises(ConnectionResetError):
            [*iter(lambda: heard.recv(65536), b"")]
        connection.close()


@pytest.mark.parametrize("when", ["before", "after", "body"])
def test_a_cut_connection_may_have_been_heard(when: Any) -> None:
    with ApiServer() as server, connected(server) as c:
        server.faults.add(Cut(when, body_bytes=10))
        with pytest.raises(TransportError, match="connection lost") as e:
            nodes(c)
        assert e.value.sent


def test_redirects_are_not_followed() -> None:
    with ApiServer() as server, connected(server) as c:
        server.faults.add(Reply(302, b"", {"Location": "http://127.0.0.1:1/"}))
        with pytest.raises(Exception, match="HTTP 302"):
            nodes(c)


def test_an_answer_that_a_cache_has_kept_is_none() -> None:
    with ApiServer() as server, connected(server) as c:
        server.faults.add(Reply(200, {}, {"Age": "7"}), times=1)
        with pytest.raises(ResponseError, match="the answer is 7 s old"):
            nodes(c)
        server.faults.add(Reply(200, {}, {"Age": "0"}), times=1)
        assert nodes(c) == 200


def test_impersonation_is_sent_and_judged_by_the_server() -> None:
    rules = {"reader": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]}
    options = ClusterOptions(impersonate="reader", impersonate_groups=("a", "b"))
    with ApiServer(rules=rules) as server, connected(server, options=options) as c:
        assert nodes(c) == 200
        with pytest.raises(ForbiddenError, match='User "reader" cannot list'):
            c.request("GET", "/api/v1/pods", Target("list", RESOURCES["Pod"]))


def test_the_kubeconfigs_own_impersonation_counts(tmp_path: Path) -> None:
    loaded = load(kubeconfig(tmp_path / "c", "http://x", {"as": "reader", "as-groups": ["g"]}))
    assert (loaded.headers, loaded.groups) == ({"Impersonate-User": "reader"}, ("g",))


def test_a_plugins_expired_token_is_renewed_once(tmp_path: Path) -> None:
    with ApiServer(tokens={"good": User("ann", ("system:masters",))}, authenticate=True) as server:
        connection = Connection(
            kubeconfig(tmp_path / "c", server.url, plugin(tmp_path / "login", "old", "good"))
        )
        assert nodes(connection) == 200
        assert [a.code for a in server.accesses] == [401, 200]
        connection.close()


def test_a_plugin_whose_tokens_are_refused_ends_in_one_error(tmp_path: Path) -> None:
    with ApiServer(authenticate=True) as server:
        connection = Connection(kubeconfig(tmp_path / "c", server.url, plugin(tmp_path / "login", "old")))
        with pytest.raises(UnauthorizedError, match="also after refreshing them once"):
            nodes(connection)
        assert len(server.accesses) == 2
        connection.close()


def test_a_request_that_must_not_wait_runs_no_plugin_and_is_not_sent_again(tmp_path: Path) -> None:
    """The token has expired: whoever evicts has looked at the cluster, and a plugin takes its time."""
    with ApiServer(tokens={"good": User("ann", ("system:masters",))}, authenticate=True) as server:
        user = plugin(tmp_path / "login", "old", "good", "not wanted")
        script = (tmp_path / "login").read_text()
        expired = '"status": {"expirationTimestamp": "2020-01-01T00:00:00Z", '
        (tmp_path / "login").write_text(script.replace('"status": {', expired))
        connection = Connection(kubeconfig(tmp_path / "c", server.url, user))
        with pytest.raises(UnauthorizedError):
            connection.request("GET", "/api/v1/nodes", NODES, once=True)
        assert connection.request("GET", "/api/v1/nodes", NODES, once=True).code == 200
        assert [a.code for a in server.accesses] == [401, 200]
        connection.close()


def test_a_plugin_that_fails_is_named_with_its_own_words(tmp_path: Path) -> None:
    user = plugin(tmp_path / "login")
    (tmp_path / "login").write_text("#!/bin/sh\necho your session is over >&2\nexit 1\n")
    with pytest.raises(ConfigurationError, match=r"plugin .*login failed: .*your session is over"):
        Connection(kubeconfig(tmp_path / "c", "http://127.0.0.1:1", user))


def test_a_token_file_may_end_in_a_newline_and_is_read_anew(tmp_path: Path) -> None:
    with ApiServer(tokens={"good": User("ann", ("system:masters",))}, authenticate=True) as server:
        (tmp_path / "token").write_text("bad\n")
        connection = Connection(
            kubeconfig(tmp_path / "c", server.url, {"tokenFile": str(tmp_path / "token")})
        )
        (tmp_path / "token").write_text("good\n")
        assert nodes(connection) == 200
        connection.close()


def test_the_environment_of_the_process_is_not_touched(tmp_path: Path) -> None:
    before = dict(os.environ)
    Connection(kubeconfig(tmp_path / "c", "http://127.0.0.1:1", {})).close()
    assert dict(os.environ) == before


def test_a_server_that_the_kubeconfig_trusts_is_reached_by_https(certificate: tuple[str, str]) -> None:
    with ApiServer(tls=certificate, authenticate=True) as server, connected(server) as c:
        assert nodes(c) == 200
        assert c.server.startswith("https://")


def test_every_request_says_who_asks(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as pool:

        def heard() -> bytes:
            asking, _ = listening.accept()
            with asking:
                request = asking.recv(65536)
                asking.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            return request

        request = pool.submit(heard)
        options = kubeconfig(tmp_path / "c", f"http://127.0.0.1:{listening.getsockname()[1]}", {"token": "t"})
        connection = Connection(replace(options, connect_timeout=30.0, read_timeout=30.0))
        assert nodes(connection) == 200
        connection.close()
        asked = request.result(30)
        assert f"\r\nUser-Agent: rebalancer/{__version__}\r\n".encode() in asked
        assert b"\r\nCache-Control: no-cache\r\n" in asked


def test_a_server_that_it_does_not_trust_is_not_sent_anything(
    certificate: tuple[str, str], tmp_path: Path
) -> None:
    with ApiServer(tls=certificate) as server:
        connection = Connection(kubeconfig(tmp_path / "c", server.url, {"token": "secret"}))
        with pytest.raises(TransportError, match="certificate is not trusted") as e:
            nodes(connection)
        assert not e.value.sent
        assert "certificate-authority" in e.value.remedy
        assert server.accesses == []
        connection.close()


def test_a_certificate_that_is_not_verified_is_said_once_in_our_words(
    certificate: tuple[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        ApiServer(tls=certificate, authenticate=True) as server,
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always")
        options = kubeconfig(
            tmp_path / "c", server.url, {"token": server.admin_token}, **{"insecure-skip-tls-verify": True}
        )
        connection = Connection(options)
        for c in (connection, connection.twin()):
            assert nodes(c) == nodes(c) == 200
            c.close()
        expected = f"TLS of {server.url} is not verified: context one has insecure-skip-tls-verify"
    (told,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert expected in told
    assert said == []


def test_new_credentials_are_of_the_same_context_and_server(tmp_path: Path) -> None:
    """`kubectl config use-context` means whoever starts next, not a daemon that is at work."""
    users = {"old": User("x", ("system:masters",)), "new": User("x", ("system:masters",))}
    with ApiServer(tokens=users, authenticate=True) as one, ApiServer(tokens=users) as other:
        path = tmp_path / "c"

        def write(current: str, token: str, moved: str = "") -> None:
            clusters = {"staging": moved or one.url, "production": other.url}
            config = {
                "current-context": current,
                "clusters": [{"name": n, "cluster": {"server": url}} for n, url in clusters.items()],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": n, "context": {"cluster": n, "user": "u"}} for n in clusters],
            }
            path.write_text(json.dumps(config))

        write("staging", "old")
        connection = Connection(ClusterOptions(kubeconfig=str(path)))
        assert nodes(connection) == 200
        write("production", "new")
        one.authority.tokens.pop("old")
        twin = connection.twin()
        assert nodes(connection) == nodes(twin) == 200
        assert {connection.server, twin.server} == {one.url}
        assert twin.time is connection.time
        write("production", "newer", moved=other.url)
        one.authority.tokens.clear()
        with pytest.raises(ConfigurationError, match=r"context staging names .* now"):
            nodes(connection)
        with pytest.raises(ConfigurationError, match="start anew"):
            connection.twin()
        assert not other.accesses
        connection.close()
        twin.close()


def test_in_a_pod_the_service_accounts_token_is_used_and_read_anew(
    certificate: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path)
    (tmp_path / "token").write_text("old")
    (tmp_path / "namespace").write_text("tools")
    shutil.copy(certificate[0], tmp_path / "ca.crt")
    users = {"new": User("system:serviceaccount:tools:x", ("system:masters",))}
    with ApiServer(tls=certificate, tokens=users, authenticate=True) as server:
        port = server.url.rpartition(":")[2]
        env = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
        connection = Connection(source=lambda: load(ClusterOptions(), env))
        assert (connection.context, connection.namespace) == ("in-cluster", "tools")
        # The kubelet rotates the file; the old token is refused.
        (tmp_path / "token").write_text("new")
        assert nodes(connection) == 200
        assert [a.code for a in server.accesses] == [401, 200]
        connection.close()
