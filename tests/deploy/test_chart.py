"""The chart by itself: linted, values described and checked, notes true, installed on a server."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from rebalancer import __version__
from tests.deploy.manifests import (
    CHART,
    NAMESPACE,
    ON,
    ROOT,
    Object,
    chart,
    notes,
    pod_template,
    settings_in,
    with_image,
)
from tests.support.sandbox import ApiServer

VALUES: Object = yaml.safe_load((CHART / "values.yaml").read_text())


def paths(values: Object, above: str = "") -> list[str]:
    """Dotted paths of all values that are no groups; an empty mapping is a value."""
    found: list[str] = []
    for name, value in values.items():
        found += paths(value, f"{above}{name}.") if isinstance(value, dict) and value else [above + name]
    return found


def test_lint_finds_nothing() -> None:
    found = helm_python.lint(str(CHART))
    assert found["errors"] == []
    assert found["messages"] == []


def test_chart_and_application_have_the_version() -> None:
    meta = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (meta["version"], meta["appVersion"]) == (__version__, __version__)


REFUSED: list[tuple[str, Object, str]] = [
    ("an unknown mode", {"mode": "deamon"}, "/mode"),
    ("a misspelt value", {"evictions": {"enable": True}}, "enable"),
    ("a word for a boolean", {"evictions": {"enabled": "yes"}}, "/evictions/enabled"),
    ("no replicas", {"daemon": {"replicas": 0}}, "/daemon/replicas"),
    ("a digest that is none", {"image": {"digest": "latest"}}, "/image/digest"),
    ("a file in place of the settings", {"files": {"rebalancer.yaml": "x"}}, "rebalancer.yaml"),
    ("a namespace of roles that cannot be", {"rbac": {"namespaces": ["shop_1"]}}, "/rbac/namespaces"),
    ("an unknown profile", {"profile": "bold"}, "/profile"),
    ("a namespace that cannot be", {"evictions": {"namespaces": ["Shop"]}}, "/evictions/namespaces"),
]


@pytest.mark.parametrize(("values", "place"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_the_schema_refuses(values: Object, place: str) -> None:
    with pytest.raises(helm_python.HelmError, match=re.escape(place)):
        chart(values)


def test_without_an_image_nothing_is_installed_and_the_remedy_is_said() -> None:
    says = "image.repository is empty: no image is published yet.*docker build.*--set image.repository="
    with helm_python.Chart.load(CHART) as loaded, pytest.raises(helm_python.HelmError, match=says):
        loaded.render({}, name="rebalancer", namespace=NAMESPACE)
    assert "from registry.example/r:1." in notes({"image": {"repository": "registry.example/r", "tag": "1"}})


def test_every_value_is_in_the_schema_and_in_the_table() -> None:
    table = (CHART / "README.md").read_text()
    named = set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE))
    assert named == set(paths(VALUES))


@pytest.mark.parametrize("path", paths(VALUES))
def test_the_table_has_the_default(path: str) -> None:
    value: Any = VALUES
    for part in path.split("."):
        value = value[part]
    row = next(r for r in (CHART / "README.md").read_text().splitlines() if r.startswith(f"| `{path}` |"))
    assert yaml.safe_load(row.split("|")[2].strip().strip("`") or '""') == value


def test_profiles_and_settings_are_merged_and_evictions_decide_last() -> None:
    def settings(values: Object) -> Object:
        made: Object = yaml.safe_load(settings_in(chart(values)))
        return made

    def profile(name: str) -> Object:
        made: Object = yaml.safe_load((ROOT / "config" / f"{name}.yaml").read_text())
        return made

    assert settings({}) == {"evictions": {"enabled": False}}
    for name, values in (("careful", ON), ("standard", {**ON, "profile": "standard"})):
        assert settings(values) == profile(name)
        assert settings(values)["evictions"]["enabled"]
    sly = settings({"config": {"evictions": {"enabled": True, "maxTotal": 1}}})
    assert sly["evictions"] == {"enabled": False, "maxTotal": 1}
    assert settings({"evictions": {"enabled": True, "namespaces": ["a"]}})["scope"] == {
        "namespaces": {"include": ["a"]}
    }


def test_roles_follow_the_names_of_ledger_brake_and_lease() -> None:
    names = {"ledger": {"name": "l"}, "brake": {"name": "b"}, "leaderElection": {"name": "e"}}
    made = chart({**ON, "config": names})
    roles = {o["metadata"]["name"]: o["rules"] for o in made if o["kind"] == "Role"}
    named = {
        role: sorted(n for rule in rules for n in rule.get("resourceNames", ()))
        for role, rules in roles.items()
    }
    assert named == {"rebalancer-memory": ["b", "l"], "rebalancer-record": ["l"], "rebalancer-lease": ["e"]}
    assert {group: yaml.safe_load(settings_in(made))[group] for group in names} == names
    assert [o for o in made if o["kind"] == "ConfigMap" and o["metadata"]["name"] == "b"]


@pytest.mark.parametrize("group", ["ledger", "brake", "leaderElection"])
def test_a_namespace_in_which_no_rights_are_granted_is_refused(group: str) -> None:
    elsewhere = {"config": {group: {"namespace": "elsewhere"}}}
    with pytest.raises(helm_python.HelmError, match=f"config.{group}.namespace"):
        chart(elsewhere)
    assert chart({**elsewhere, "rbac": {"create": False}})


def test_evictions_where_nothing_is_read_are_refused() -> None:
    values = {"evictions": {"enabled": True, "namespaces": ["pay", "elsewhere"]}}
    with pytest.raises(helm_python.HelmError, match="elsewhere is not in rbac"):
        chart({**values, "rbac": {"namespaces": ["default", "pay"]}})
    assert chart(values)


def pod_of(values: Object) -> Object:
    found: Object = next(filter(None, map(pod_template, chart(values))))["spec"]
    return found


def test_files_are_mounted_beside_the_settings_and_start_it_anew() -> None:
    text = "kind: KubeSchedulerConfiguration\nprofiles: []\n"
    made = chart({"files": {"scheduler.yaml": text}})
    settings = next(o for o in made if o["kind"] == "ConfigMap" and o["metadata"]["name"].endswith("-config"))
    assert settings["data"]["scheduler.yaml"].strip() == text.strip()
    sums = {
        next(filter(None, map(pod_template, chart(values))))["metadata"]["annotations"]["checksum/config"]
        for values in ({}, {"files": {"scheduler.yaml": text}}, {"files": {"scheduler.yaml": "other"}})
    }
    assert len(sums) == 3


def test_volumes_of_others_can_be_mounted() -> None:
    volumes = [{"name": "textfile", "hostPath": {"path": "/var/lib/node_exporter"}}]
    mounts = [{"name": "textfile", "mountPath": "/metrics"}]
    for mode in ("daemon", "cronjob", "report"):
        spec = pod_of({"mode": mode, "extraVolumes": volumes, "extraVolumeMounts": mounts})
        assert spec["volumes"][1:] == volumes
        assert spec["containers"][0]["volumeMounts"][1:] == mounts


def test_the_user_can_be_left_to_the_cluster() -> None:
    """OpenShift's restricted-v2 refuses a pod that names a user."""
    none = {"podSecurityContext": {"runAsUser": None, "runAsGroup": None}}
    assert pod_of(none)["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_the_notes_say_whether_pods_are_evicted() -> None:
    assert "Nothing is evicted" in notes({})
    assert "Evictions are ON, in shop only" in notes({"evictions": {"enabled": True, "namespaces": ["shop"]}})
    assert "job/rebalancer-report-1" in notes({"mode": "report"})


def test_releases_of_other_names_do_not_collide() -> None:
    one = {(o["kind"], o["metadata"]["name"]) for o in chart({}, name="a")}
    other = {(o["kind"], o["metadata"]["name"]) for o in chart({}, name="b")}
    assert not one & other


APPROVAL: Object = {"config": {"approval": {"mode": "required", "namespaces": ["shop"]}}}
WIDE: Object = {**ON, **APPROVAL, "prevention": {"scaleIn": "all"}}
NARROW: Object = {**WIDE, "rbac": {"namespaces": ["shop", "pay"]}}
BOUND: Object = {**WIDE, "evictions": {"enabled": True, "namespaces": ["shop"]}}


def whole_names(objects: list[Object]) -> set[tuple[str, str, str]]:
    return {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]) for o in objects}


@pytest.mark.parametrize("first", [WIDE, NARROW, BOUND], ids=["wide", "narrow", "bound"])
@pytest.mark.parametrize("second", [WIDE, NARROW, BOUND], ids=["wide", "narrow", "bound"])
def test_releases_of_one_name_in_two_namespaces_share_nothing(first: Object, second: Object) -> None:
    one = whole_names(chart(first))
    assert not one & whole_names(chart(second, namespace="shop-tools"))
    assert not whole_names(chart(first, namespace="pay-tools")) & whole_names(
        chart(second, namespace="shop-tools")
    )


@pytest.mark.parametrize("values", [WIDE, NARROW, BOUND], ids=["wide", "narrow", "bound"])
def test_every_binding_names_a_role_that_is_there(values: Object) -> None:
    made = chart(values, namespace="shop-tools")
    roles = whole_names(made)
    for o in made:
        if "roleRef" in o:
            kind = o["roleRef"]["kind"]
            where = o["metadata"]["namespace"] if kind == "Role" else ""
            assert (kind, where, o["roleRef"]["name"]) in roles


def test_where_evictions_are_narrowed_pods_are_patched_there_only() -> None:
    made = chart(BOUND, namespace="shop-tools")
    bound = [
        (o["kind"], o["metadata"].get("namespace"))
        for o in made
        if "roleRef" in o and o["roleRef"]["name"].endswith("rebalancer-prevent")
    ]
    assert bound == [("RoleBinding", "shop")]


def test_two_releases_of_one_namespace_that_only_steer_have_a_lease_each() -> None:
    leases = []
    for team in ("shop", "pay"):
        values = {"rbac": {"namespaces": [team]}, "prevention": {"scaleIn": "all"}}
        made = chart(values, namespace="tools", name=f"rebalancer-{team}")
        settings = yaml.safe_load(settings_in(made))
        leases += [
            rule["resourceNames"]
            for o in made
            if o["kind"] == "Role" and o["metadata"]["name"].endswith("-prevent-brake")
            for rule in o["rules"]
            if rule["resources"] == ["leases"] and "resourceNames" in rule
        ]
        assert leases[-1] == [f"{settings['brake']['name']}-scale-in"]
    assert leases[0] != leases[1]


def test_scale_ins_are_steered_by_the_value_that_grants_the_right() -> None:
    made = chart({"config": {"prevention": {"scaleIn": "all", "dryRun": True}}})
    assert yaml.safe_load(settings_in(made))["prevention"] == {"scaleIn": "off", "dryRun": True}


def test_an_upgrade_from_the_names_without_a_namespace_leaves_no_minute_without_rights(
    tmp_path: Path,
) -> None:
    before = tmp_path / "before"
    shutil.copytree(CHART, before)
    helpers = before / "templates" / "_helpers.tpl"
    text = helpers.read_text()
    assert "{{ .Release.Namespace }}.{{- end -}}" in text
    helpers.write_text(text.replace("{{ .Release.Namespace }}.{{- end -}}", "{{- end -}}"))
    spaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        for name in ("shop-tools", "shop", "pay")
    ]
    with ApiServer(spaces, brake=False) as server:
        config = helm_python.Config(
            kubeconfig_path=str(server.kubeconfig(tmp_path / "kubeconfig")),
            namespace="shop-tools",
            storage_driver="memory",
        )
        with config as helm, helm_python.Chart.load(before) as old, helm_python.Chart.load(CHART) as new:
            helm.install(old, name="rebalancer", values=with_image(NARROW))
            assert server.store.find("RoleBinding", "rebalancer-read", "shop") is not None
            since = len(server.accesses)
            helm.upgrade(new, name="rebalancer", values=with_image(NARROW))
        done = [(a.verb, a.resource) for a in server.accesses[since:]]
        for kind, resource in (
            ("RoleBinding", "rolebindings"),
            ("ClusterRoleBinding", "clusterrolebindings"),
        ):
            names = {
                o["metadata"]["name"]
                for o in server.store.list(kind)
                if o["metadata"].get("namespace") != "shop-tools"
            }
            assert names
            assert all(name.startswith("shop-tools.rebalancer-") for name in names)
            last = max(n for n, d in enumerate(done) if d == ("patch", resource))  # server-side apply
            assert last < min(n for n, d in enumerate(done) if d == ("delete", resource))


def test_install_upgrade_and_uninstall_on_a_server(tmp_path: Path) -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    with ApiServer([namespace], brake=False) as server:
        kubeconfig = str(server.kubeconfig(tmp_path / "kubeconfig"))
        with (
            helm_python.Config(
                kubeconfig_path=kubeconfig, namespace=NAMESPACE, storage_driver="memory"
            ) as helm,
            helm_python.Chart.load(CHART) as loaded,
        ):
            helm.install(loaded, name="rebalancer", values=with_image({"mode": "cronjob"}))
            assert server.store.find("CronJob", "rebalancer", NAMESPACE) is not None
            assert server.store.find("ClusterRole", "rebalancer-evict", None) is None
            helm.upgrade(loaded, name="rebalancer", values=with_image({"mode": "cronjob", **ON}))
            assert server.store.find("ClusterRole", "rebalancer-evict", None) is not None
            helm.uninstall("rebalancer")
        left = [kind for kind in ("CronJob", "ClusterRole", "ConfigMap", "Role") if server.store.list(kind)]
        assert left == []


def test_who_must_be_asked_is_shown_the_plan_in_each_namespace_and_a_team_gets_a_role() -> None:
    approval = {"mode": "required", "namespaces": ["shop", "data"]}
    made = chart({**ON, "config": {"approval": approval}})
    plan = {
        (o["metadata"]["namespace"], o["metadata"]["name"]): o["rules"]
        for o in made
        if o["kind"] == "Role" and o["metadata"]["name"].endswith(("-plan", "-approver"))
    }
    assert sorted(plan) == [
        (n, f"rebalancer-{r}") for n in ("data", NAMESPACE, "shop") for r in ("approver", "plan")
    ]
    component = ROOT / "deploy" / "kustomize" / "components" / "approval" / "rbac.yaml"
    kustomized = {
        o["metadata"]["name"]: o["rules"] for o in yaml.safe_load_all(component.read_text()) if "rules" in o
    }
    assert all(rules == kustomized[name] for (_, name), rules in plan.items())
    bound = [
        o["metadata"]["namespace"]
        for o in made
        if o["kind"] == "RoleBinding" and "-plan" in o["metadata"]["name"]
    ]
    assert sorted(bound) == ["data", NAMESPACE, "shop"]
    assert not [o for o in chart(ON) if "-plan" in o["metadata"]["name"]]
