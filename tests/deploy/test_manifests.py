"""kustomize and Helm: the same objects, valid by the API's schemas, restricted, and taken by a server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from rebalancer import __version__
from rebalancer.kube.resources import LABEL_USERS
from rebalancer.runtime.last_look.health import CONTROLLERS_LEASE, SCHEDULER_LEASE
from rebalancer.settings import Settings, load_settings
from tests.deploy.manifests import (
    CHART,
    KUBECTL,
    ON,
    ROOT,
    SAME,
    Object,
    chart,
    essence,
    key,
    overlay,
    pod_template,
    settings_in,
)
from tests.support.sandbox import ApiServer

VARIANTS: dict[str, Object] = {
    **SAME,
    "two namespaces": {"evictions": {"enabled": True, "namespaces": ["shop", "pay"]}},
    "everything else": {
        "mode": "cronjob",
        "image": {"digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "profile": "standard",
        "config": {"scope": {"mode": "opt-in"}},
        "env": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
        "podLabels": {"team": "platform"},
        "podAnnotations": {"note": "x"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "serviceAccount": {"annotations": {"note": "x"}},
        "networkPolicy": {"enabled": False},
    },
}
CUSTOM = ("ServiceMonitor",)
"""Kinds that are no part of Kubernetes itself."""


def rendered() -> dict[str, list[Object]]:
    made = {f"kustomize {name}": overlay(name) for name in SAME} if KUBECTL else {}
    return made | {f"helm {name}": chart(values) for name, values in VARIANTS.items()}


@pytest.mark.parametrize("name", SAME)
def test_the_chart_and_the_overlay_mean_the_same(name: str) -> None:
    ours, theirs = essence(overlay(name)), essence(chart(SAME[name]))
    assert sorted(ours) == sorted(theirs)
    for object_ in ours:
        assert ours[object_] == theirs[object_], object_


@pytest.mark.parametrize("version", ["1.29", "1.36"])
def test_every_object_fits_the_schema_of_the_api(version: str) -> None:
    unique = {json.dumps(o, sort_keys=True): o for objects in rendered().values() for o in objects}
    assert len(unique) > 40
    for obj in unique.values():
        if obj["kind"] not in CUSTOM:
            kubernetes_validate.validate(obj, version, strict=True)


def test_a_field_that_does_not_exist_is_noticed() -> None:
    broken = next(o for o in chart({}) if o["kind"] == "Deployment")
    broken["spec"]["template"]["spec"]["hostNetwrok"] = True
    with pytest.raises(kubernetes_validate.ValidationError, match="hostNetwrok"):
        kubernetes_validate.validate(broken, "1.36", strict=True)


def test_pods_keep_to_the_restricted_pod_security_standard() -> None:
    seen = 0
    for name, objects in rendered().items():
        for template in filter(None, map(pod_template, objects)):
            seen += 1
            spec = template["spec"]
            assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(spec), name
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["securityContext"]["runAsUser"] > 0
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert {k for v in spec["volumes"] for k in v} <= {"name", "configMap"}
            for container in spec["containers"]:
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                }
                assert container["resources"]["requests"].keys() == {"cpu", "memory"}
                assert container["resources"]["limits"].keys() == {"memory"}
    assert seen >= len(SAME)


def test_only_pods_that_need_a_token_get_one() -> None:
    for objects in rendered().values():
        account = next(o for o in objects if o["kind"] == "ServiceAccount")
        assert account["automountServiceAccountToken"] is False


def test_nothing_is_evicted_and_no_right_to_it_exists_by_default() -> None:
    for name, objects in rendered().items():
        evicts = any("pods/eviction" in rule["resources"] for o in objects for rule in o.get("rules", ()))
        text = settings_in(objects)
        enabled = bool(yaml.safe_load(text)["evictions"]["enabled"])
        assert evicts == enabled == ("evicting" in name or "two namespaces" in name), name


@pytest.mark.parametrize("name", VARIANTS)
def test_the_settings_in_the_config_map_are_valid(name: str, tmp_path: Path) -> None:
    text = settings_in(chart(VARIANTS[name]))
    (tmp_path / "rebalancer.yaml").write_text(text)
    load_settings(tmp_path / "rebalancer.yaml", env={})


def test_profiles_are_those_of_config() -> None:
    for profile in ("observe", "careful", "standard"):
        ours = (ROOT / "config" / f"{profile}.yaml").read_text()
        assert (CHART / "profiles" / f"{profile}.yaml").read_text() == ours
        settings = load_settings(ROOT / "config" / f"{profile}.yaml", env={})
        assert settings.evictions.enabled is (profile != "observe")
    kustomize = ROOT / "deploy" / "kustomize"
    assert (kustomize / "base/rebalancer.yaml").read_text() == (ROOT / "config/observe.yaml").read_text()
    component = kustomize / "components/evictions/rebalancer.yaml"
    assert component.read_text() == (ROOT / "config/careful.yaml").read_text()


def test_images_are_of_this_version() -> None:
    for name, objects in rendered().items():
        for template in filter(None, map(pod_template, objects)):
            image = template["spec"]["containers"][0]["image"]
            assert image.endswith(f":{__version__}") or "@sha256:" in image, name


def test_evictions_in_two_namespaces_are_bound_there_only() -> None:
    made = chart(VARIANTS["two namespaces"])
    bindings = [o for o in made if o.get("roleRef", {}).get("name") == "rebalancer-evict"]
    assert [(o["kind"], o["metadata"]["namespace"]) for o in bindings] == [
        ("RoleBinding", "shop"),
        ("RoleBinding", "pay"),
    ]


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")
@pytest.mark.parametrize("name", SAME)
def test_a_server_takes_both_in_a_dry_run(name: str, tmp_path: Path) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "rebalancer"}}
    with ApiServer([namespace]) as server:
        environment = {
            **os.environ,
            "KUBECONFIG": str(server.kubeconfig(tmp_path / "k")),
            "HOME": str(tmp_path),
        }
        for objects in (overlay(name), chart(SAME[name])):
            served = [o for o in objects if o["kind"] not in CUSTOM]
            done = subprocess.run(
                [str(KUBECTL), "apply", "--dry-run=server", "-f", "-"],
                input=yaml.safe_dump_all(served),
                env=environment, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            assert done.stdout.count("(server dry run)") == len(served)
        assert not server.store.list("Deployment")


def test_names_are_unique_in_a_rendering() -> None:
    for name, objects in rendered().items():
        keys = [(key(o), o["metadata"].get("namespace")) for o in objects]
        assert len(keys) == len(set(keys)), name


def test_an_overlay_in_another_namespace_shares_nothing_with_the_others() -> None:
    def names(objects: list[Object]) -> set[tuple[str, str, str]]:
        return {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]) for o in objects}

    other = overlay("another-namespace")
    for name in SAME:
        assert not names(other) & names(overlay(name))
    theirs = [*other, *chart({}, namespace="shop-tools")]
    bound = {(o["kind"], o["metadata"]["name"], o["roleRef"]["name"]) for o in theirs if "roleRef" in o}
    ours = {(o["kind"], o["metadata"]["name"], o["roleRef"]["name"]) for o in other if "roleRef" in o}
    assert bound == ours, "the chart gives the same names"
    classes = {o["metadata"]["name"] for o in other if o["kind"] == "PriorityClass"}
    template = next(filter(None, map(pod_template, other)))
    assert {template["spec"]["priorityClassName"]} == classes == {"shop-tools.rebalancer"}


def test_evicting_changes_rights_and_settings_alone() -> None:
    before, after = essence(chart({})), essence(chart(ON))
    changed = {k for k in before if before[k] != after.get(k)}
    added = set(after) - set(before)
    assert changed == {"ConfigMap/rebalancer-config"}
    assert {k.split("/")[0] for k in added} == {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}


def test_a_run_may_take_as_long_as_a_cycle_may() -> None:
    settings = Settings.defaults()
    longest = settings.schedule.max_cycle_time + settings.evictions.ready_timeout
    job = next(o for o in chart(SAME["cronjob"]) if o["kind"] == "CronJob")["spec"]["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] > longest


def test_probes_ask_where_the_daemon_listens(tmp_path: Path) -> None:
    for port, address in ((8080, "auto"), (9090, ":9090")):
        made = chart({"daemon": {"port": port}})
        (tmp_path / "rebalancer.yaml").write_text(settings_in(made))
        assert load_settings(tmp_path / "rebalancer.yaml", env={}).health.address == address
        container = next(filter(None, map(pod_template, made)))["spec"]["containers"][0]
        assert container["ports"] == [{"name": "http", "containerPort": port}]
        assert {container[f"{p}Probe"]["httpGet"]["port"] for p in ("startup", "liveness", "readiness")} == {
            "http"
        }


def test_the_names_in_roles_are_those_of_the_settings() -> None:
    settings = Settings.defaults()
    named = {
        (resource, name)
        for o in chart(ON)
        for rule in o.get("rules", ())
        for resource in rule["resources"]
        for name in rule.get("resourceNames", ())
    }
    assert named == {
        ("configmaps", settings.brake.name),
        ("configmaps", settings.ledger.name),
        ("leases", settings.leader_election.name),
        ("leases", SCHEDULER_LEASE[1]),
        ("leases", CONTROLLERS_LEASE[1]),
    }


def test_every_installation_has_the_brake_that_its_settings_and_rights_name() -> None:
    for values, name, release in (
        ({}, "rebalancer-brake", "rebalancer"),
        (ON, "rebalancer-brake", "rebalancer"),
        (ON, "other-rebalancer-brake", "other"),
        (ON | {"config": {"brake": {"name": "stop"}}}, "stop", "rebalancer"),
    ):
        made = chart(values, name=release)
        label = "app.kubernetes.io/component"
        (brake,) = [o for o in made if o["metadata"].get("labels", {}).get(label) == "brake"]
        assert (brake["kind"], brake["metadata"]["name"]) == ("ConfigMap", name)
        assert "data" not in brake
        said = yaml.safe_load(settings_in(made)).get("brake", {}).get("name", Settings.defaults().brake.name)
        assert said == name
        rights = [
            rule for o in made for rule in o.get("rules", ()) if name in (rule.get("resourceNames") or ())
        ]
        assert [rule["verbs"] for rule in rights] == [["get"]]


def with_components(overlay_name: str, components: list[str], folder: Path) -> list[Object]:
    """An overlay of a user's own: one of ours, and components."""
    if KUBECTL is None:
        pytest.skip("kubectl is not on PATH")

    def below(path: str) -> str:
        return os.path.relpath(ROOT / "deploy" / "kustomize" / path, folder)

    own = {
        "resources": [below(f"overlays/{overlay_name}")],
        "components": [below(f"components/{c}") for c in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(own))
    done = subprocess.run(
        [KUBECTL, "kustomize", str(folder)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return [o for o in yaml.safe_load_all(done.stdout) if o]


SLACK: Object = {"notifications": {"slack": {"secret": "rebalancer-notifications", "key": "slack"}}}


@pytest.mark.parametrize(("overlay_name", "mode"), [("daemon", "daemon"), ("cronjob-evicting", "cronjob")])
def test_the_secret_of_a_chat_is_mounted_and_named(overlay_name: str, mode: str, tmp_path: Path) -> None:
    kustomized = with_components(overlay_name, ["notifications"], tmp_path)
    for made in (kustomized, chart({"mode": mode, **SLACK})):
        spec = next(filter(None, map(pod_template, made)))["spec"]
        container = spec["containers"][0]
        variables = {e["name"]: e["value"] for e in container.get("env", ())}
        (tmp_path / "c.yaml").write_text(settings_in(made))
        file = Path(load_settings(tmp_path / "c.yaml", env=variables).notifications.slack.url_file)
        mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
        volumes = {v["name"]: v for v in spec["volumes"]}
        assert volumes[mounts[str(file.parent)]]["secret"]["secretName"] == "rebalancer-notifications"
        assert file.name == "slack"


def test_steered_scale_ins_have_the_same_right_by_kustomize_and_helm(tmp_path: Path) -> None:
    kustomized = with_components("daemon", ["prevention"], tmp_path)
    values: Object = {"prevention": {"scaleIn": "annotated"}}
    name = "ClusterRole/rebalancer-prevent"
    assert essence(kustomized)[name]["rules"] == essence(chart(values))[name]["rules"]
    assert f"ClusterRoleBinding/{name.partition('/')[2]}" in essence(kustomized)
    env = next(filter(None, map(pod_template, kustomized)))["spec"]["containers"][0]["env"]
    assert load_settings(env={e["name"]: e["value"] for e in env}).prevention.scale_in == "annotated"
    assert name not in essence(chart({**values, "mode": "report"}))
    assert name not in essence(chart({}))


@pytest.mark.parametrize("overlay_name", ["cronjob-evicting", "daemon-evicting"])
def test_replace_first_has_the_same_rights_by_kustomize_and_helm(overlay_name: str, tmp_path: Path) -> None:
    kustomized = with_components(overlay_name, ["replace-first"], tmp_path)
    values: Object = {**SAME[overlay_name], "replaceFirst": {"enabled": True}}
    made = essence(chart(values))
    for role in ("rebalancer-replace-first", "rebalancer-selectors"):
        assert essence(kustomized)[f"ClusterRole/{role}"]["rules"] == made[f"ClusterRole/{role}"]["rules"]
        assert f"ClusterRoleBinding/{role}" in essence(kustomized)
        assert f"ClusterRole/{role}" not in essence(chart(SAME[overlay_name]))
    listed = {
        (g, r)
        for rule in made["ClusterRole/rebalancer-selectors"]["rules"]
        for g in rule["apiGroups"]
        for r in rule["resources"]
    }
    assert listed == {(r.group, r.plural) for r in LABEL_USERS}
    env = next(filter(None, map(pod_template, kustomized)))["spec"]["containers"][0]["env"]
    assert load_settings(env={e["name"]: e["value"] for e in env}).evictions.method == "auto"
    assert yaml.safe_load(settings_in(chart(values)))["evictions"]["method"] == "auto"


def egress(objects: list[Object]) -> list[Object]:
    """The ways out of the one NetworkPolicy."""
    [policy] = [o for o in objects if o["kind"] == "NetworkPolicy"]
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    rules: list[Object] = policy["spec"]["egress"]
    return rules


def test_out_go_name_resolution_and_the_api_server_and_what_is_asked_for() -> None:
    for name, objects in rendered().items():
        if any(o["kind"] == "NetworkPolicy" for o in objects):
            resolving, api_server, *more = egress(objects)
            assert {p["port"] for p in resolving["ports"]} == {53}
            assert {"namespaceSelector", "podSelector"} == set(resolving["to"][0])
            assert resolving["to"][1:] == [{"ipBlock": {"cidr": "169.254.20.10/32"}}]
            assert api_server == {"ports": [{"port": p, "protocol": "TCP"} for p in (443, 6443)]}
            collector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
            otlp = {"to": [collector], "ports": [{"port": 4318, "protocol": "TCP"}]}
            assert more == ([otlp] if "monitoring" in name else []), name


def test_in_comes_nobody_but_who_scrapes_from_one_namespace() -> None:
    seen = 0
    for name, objects in rendered().items():
        for policy in (o for o in objects if o["kind"] == "NetworkPolicy"):
            seen += 1
            scraping = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
            opened = [{"from": [scraping], "ports": [{"port": "http", "protocol": "TCP"}]}]
            assert policy["spec"].get("ingress", []) == (opened if "monitoring" in name else []), name
    assert seen


def test_the_way_to_the_api_server_can_be_narrowed_to_it() -> None:
    rule = {"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"port": 4318, "protocol": "TCP"}]}
    addresses = ["10.0.0.4/32", "fd00::1/128"]
    names = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}}]
    network = {"apiServerCIDRs": addresses, "egress": [rule], "dns": names}
    resolving, api_server, more = egress(chart({"networkPolicy": network}))
    assert [peer["ipBlock"]["cidr"] for peer in api_server["to"]] == addresses
    assert resolving["to"] == names
    assert more == rule


def test_a_receiver_on_another_port_is_let_through() -> None:
    made = chart({"notifications": {"webhook": {"secret": "s"}, "port": 8443}})
    policy = next(o for o in made if o["kind"] == "NetworkPolicy")
    ports = {p["port"] for rule in policy["spec"]["egress"] for p in rule["ports"]}
    assert 8443 in ports
    closed = next(o for o in chart({}) if o["kind"] == "NetworkPolicy")
    assert "8443" not in str(closed)
