"""Which cluster, and as whom: kubeconfig, context, in-cluster service account, impersonation.

The official client's loaders do the work (client certificates, tokens, exec plugins, OIDC, proxies); what
they keep quiet about is made an error here: a kubeconfig that is missing, a plugin that failed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes.client.configuration import Configuration
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.incluster_config import SERVICE_HOST_ENV_NAME, InClusterConfigLoader
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
from msgspec import Struct
from urllib3.exceptions import InsecureRequestWarning

from rebalancer.kube.errors import ConfigurationError

IN_CLUSTER = "in-cluster"
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

log = logging.getLogger(__name__)


class ClusterOptions(Struct, frozen=True, kw_only=True):
    """What the user says about the connection; "" means: as kubectl would.

    `kubeconfig`: a path, or several joined by the path separator. `impersonate`, `impersonate_groups`: --as
    and --as-group. Timeouts in seconds; `read_timeout` is for the silence between two packets.
    `gzip` asks for compressed lists, which costs the server time: for slow networks only.
    """

    kubeconfig: str = ""
    context: str = ""
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()
    connect_timeout: float = 5.0
    read_timeout: float = 60.0
    gzip: bool = False


class Loaded(Struct, frozen=True, eq=False):
    """A usable configuration: `client` the official client's, `context` its name ("in-cluster" for a service
    account), `namespace` the context's own, `headers` that impersonate."""

    client: Any
    context: str
    namespace: str
    headers: dict[str, str]
    groups: tuple[str, ...] = ()


def load(options: ClusterOptions, env: Mapping[str, str] = os.environ) -> Loaded:
    """The configuration, read anew at each call, which is how credentials are refreshed.

    A kubeconfig wins over the service account, as with kubectl. Raises ConfigurationError.
    """
    path = options.kubeconfig or env.get("KUBECONFIG", "")
    default = Path(env.get("HOME", "~")).expanduser() / ".kube" / "config"
    if not path and default.is_file():
        path = str(default)
    if path or options.context:
        return _from_kubeconfig(options, path or str(default))
    if env.get(SERVICE_HOST_ENV_NAME):
        return _in_cluster(options, env)
    raise ConfigurationError(
        f"no cluster to talk to: no {default}, $KUBECONFIG is not set, and this is not a pod",
        "give --kubeconfig FILE, or --snapshot FILE to work on what kubectl printed",
    )


def _in_cluster(options: ClusterOptions, env: Mapping[str, str]) -> Loaded:
    client = _configuration()
    try:
        InClusterConfigLoader(
            token_filename=str(SERVICE_ACCOUNT / "token"),
            cert_filename=str(SERVICE_ACCOUNT / "ca.crt"),
            environ=env,
        ).load_and_set(client)
        namespace = (SERVICE_ACCOUNT / "namespace").read_text().strip()
    except (ConfigException, OSError) as e:
        raise ConfigurationError(
            f"this pod has no usable service account: {e}",
            "set serviceAccountName and do not set automountServiceAccountToken: false",
        ) from e
    return Loaded(
        client, IN_CLUSTER, namespace, _impersonation(options.impersonate), options.impersonate_groups
    )


def _from_kubeconfig(options: ClusterOptions, path: str) -> Loaded:
    files = [Path(p).expanduser() for p in path.split(os.pathsep) if p]
    if not any(f.exists() for f in files):
        raise ConfigurationError(
            f"kubeconfig {path} does not exist", "see --kubeconfig, $KUBECONFIG, or ~/.kube/config"
        )
    client = _configuration()
    quiet = _Quiet()
    root = logging.getLogger()
    root.addHandler(quiet)
    try:
        merged = KubeConfigMerger(path)
        _check_context(merged, options.context, path)
        loader = KubeConfigLoader(
            config_dict=merged.config,
            active_context=options.context or None,
            config_base_path=None,
            config_persister=lambda: _persist(merged),
        )
        loader.load_and_set(client)
        context: dict[str, Any] = loader.current_context
        user = _user(merged, context)
    except (ConfigException, OSError, yaml.YAMLError, TypeError, KeyError, ValueError) as e:
        raise ConfigurationError(
            f"kubeconfig {path}: {e}", "compare with `kubectl config view` and `kubectl config get-contexts`"
        ) from e
    finally:
        root.removeHandler(quiet)
    name = str(context.get("name", ""))
    if not client.verify_ssl:
        _say_insecure(str(client.host), name)
    if "exec" in user and "BearerToken" not in client.api_key and not client.cert_file:
        raise ConfigurationError(
            f"kubeconfig {path}, context {name}: credentials plugin {user['exec'].get('command')} failed: "
            + ("; ".join(quiet.messages) or "it printed neither a token nor a certificate"),
            "run it by hand to see why, or log in again",
        )
    return Loaded(
        client=client,
        context=name,
        namespace=str((context.get("context") or {}).get("namespace") or "default"),
        # kubectl honours these of the kubeconfig; the client's loader does not know them.
        headers=_impersonation(options.impersonate or str(user.get("as", ""))),
        groups=options.impersonate_groups or tuple(user.get("as-groups") or ()),
    )


def _check_context(merged: Any, wanted: str, path: str) -> None:
    """Raises ConfigurationError, with the names of those that there are."""
    names = [str(c["name"]) for c in merged.config.safe_get("contexts") or []]
    chosen = wanted or merged.config.safe_get("current-context")
    if chosen not in names:
        has = f"has no context {chosen}" if chosen else "has no current-context"
        there = f"--context takes one of: {', '.join(names)}" if names else "it has no contexts at all"
        raise ConfigurationError(f"kubeconfig {path} {has}", there)


@cache
def _say_insecure(server: str, context: str) -> None:
    """Once for each server; urllib3 says it with every request."""
    urllib3.disable_warnings(InsecureRequestWarning)
    log.warning(
        "TLS of %s is not verified: context %s has insecure-skip-tls-verify; give certificate-authority",
        server,
        context,
    )


def _configuration() -> Any:
    client = Configuration()
    # One place decides about retries and redirects, and it is not the transport: urllib3 would sleep out a
    # Retry-After uninterruptibly, and a redirect would carry the token elsewhere.
    client.retries = False
    client.keep_alive = True
    # A watch a kind, and some requests beside them; beyond it urllib3 warns and throws connections away.
    client.connection_pool_maxsize = 40
    return client


def _user(merged: Any, context: dict[str, Any]) -> dict[str, Any]:
    name = (context.get("context") or {}).get("user")
    users = merged.config.safe_get("users") or []
    found = next((u for u in users if u["name"] == name), None)
    # Merged files hold nodes of the loader's own kind around the plain dict.
    plain = getattr(found, "value", found) or {}
    user = plain.get("user") or {}
    return dict(user) if isinstance(user, dict) else {}


def _impersonation(user: str) -> dict[str, str]:
    return {"Impersonate-User": user} if user else {}


def _persist(merged: Any) -> None:
    """Writes refreshed OIDC tokens back into the kubeconfig, as kubectl does; a failure breaks nothing."""
    try:
        merged.save_changes()
    except OSError as e:
        log.warning("refreshed credentials could not be written back: %s", e)


class _Quiet(logging.Handler):
    """Collects what the client's loader only logs, on the root logger, when a plugin fails."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the loader's own messages."""
        if record.name == "root" and record.module == "kube_config":
            self.messages.append(record.getMessage())
