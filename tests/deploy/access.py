"""Rights that manifests grant, and rights that a run asked for, in the same words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.deploy.manifests import NAMESPACE, Object
from tests.support.sandbox.authority import Access, User

ACCOUNT = User(f"system:serviceaccount:{NAMESPACE}:rebalancer", ("system:serviceaccounts",))


class Right(NamedTuple):
    """One verb on one resource. `namespace` "" = everywhere; `name` "" = any."""

    role: str
    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def covers(self, access: Access) -> bool:
        """Whether this right allows that request."""
        asked = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
        return (
            (access.verb, access.group, asked) == (self.verb, self.group, self.resource)
            and self.namespace in ("", access.namespace)
            and self.name in ("", access.name)
        )


def granted(objects: Iterable[Object]) -> list[Right]:
    """Every right that the bindings among these objects give; a right is one verb on one resource."""
    objects = list(objects)
    roles = {(o["kind"], o["metadata"]["name"]): o for o in objects if o["kind"] in ("ClusterRole", "Role")}
    found: list[Right] = []
    for binding in objects:
        if binding["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        name = binding["roleRef"]["name"]
        where = binding["metadata"]["namespace"] if binding["kind"] == "RoleBinding" else ""
        for rule in roles[binding["roleRef"]["kind"], name]["rules"]:
            found += [
                Right(name, verb, group, resource, where, single)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
                for single in rule.get("resourceNames", [""])
            ]
    return found


def asked(accesses: Iterable[Access]) -> list[Access]:
    """What the tool's account asked of resources. Discovery and /version need no right."""
    return [a for a in accesses if a.user == ACCOUNT.name and a.resource]
