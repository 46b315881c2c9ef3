"""Who asks (bearer tokens, impersonation) and whether they may (RBAC, from a table and from the store)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rebalancer.sandbox.objects import Object
from rebalancer.sandbox.registry import Store
from rebalancer.sandbox.resources import ApiError


class User(NamedTuple):
    name: str
    groups: tuple[str, ...] = ()


ADMIN = User("kubernetes-admin", ("system:masters", "system:authenticated"))
ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Access(NamedTuple):
    """One request as the authorizer sees it; in the access log, `code` is what was answered (0: cut), `size`
    the bytes of its body (0: it was streamed), `limit` the most objects of a page (0: none was said),
    `fields` the field selector, `dry_run` what webhooks are told.

    `group`, `resource`, `subresource` are empty for paths that are no resources.
    """

    user: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    path: str
    code: int = 0
    size: int = 0
    limit: int = 0
    fields: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    """A PolicyRule. `namespaces` None: everywhere, otherwise there only."""

    verbs: Sequence[str]
    resources: Sequence[str] = ()
    api_groups: Sequence[str] = ("",)
    namespaces: Sequence[str] | None = None
    resource_names: Sequence[str] = ()
    paths: Sequence[str] = ()

    @staticmethod
    def of(rule: Mapping[str, Any], namespaces: Sequence[str] | None = None) -> Rule:
        """From a rule as a Role has it; a key `namespaces` narrows it further."""
        return Rule(
            rule.get("verbs") or (),
            rule.get("resources") or (),
            rule.get("apiGroups") or (),
            rule.get("namespaces", namespaces),
            rule.get("resourceNames") or (),
            rule.get("nonResourceURLs") or (),
        )

    def allows(self, access: Access) -> bool:
        if access.verb not in self.verbs and "*" not in self.verbs:
            return False
        if not access.resource:
            return any(_path(pattern, access.path) for pattern in self.paths)
        word = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
        wanted = {"*", word, f"*/{access.subresource}"} if access.subresource else {"*", word}
        return (
            not wanted.isdisjoint(self.resources)
            and not {"*", access.group}.isdisjoint(self.api_groups)
            and (self.namespaces is None or access.namespace in self.namespaces)
            and (not self.resource_names or access.name in self.resource_names)
        )


def _path(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


_PUBLIC = ("/healthz", "/livez", "/readyz", "/version")
_DISCOVERY = ("/api", "/apis", "/openapi")


class Authority:
    """`tokens`: bearer token → user. `rules`: user or group name → what it may, beside RBAC objects.

    With `authenticate` false a request without a token is the admin's: kubectl sends no token over
    plain HTTP. A wrong token is refused in any case.
    """

    def __init__(
        self,
        store: Store,
        tokens: Mapping[str, User],
        rules: Mapping[str, Iterable[Rule | Mapping[str, Any]]],
        *,
        authenticate: bool,
    ) -> None:
        self._store = store
        self.tokens = dict(tokens)
        self.rules: dict[str, list[Rule]] = {
            name: [rule if isinstance(rule, Rule) else Rule.of(rule) for rule in given]
            for name, given in rules.items()
        }
        self.authenticate = authenticate

    def identify(self, headers: Mapping[str, str], groups: Sequence[str] = ()) -> User:
        """The user, after impersonation (`groups`: the Impersonate-Group headers). ApiError 401 or 403."""
        text = headers.get("authorization", "")
        if text.lower().startswith("bearer "):
            found = self.tokens.get(text[7:].strip())
            if found is None:
                raise ApiError(401, "Unauthorized", "Unauthorized")
            user = User(found.name, tuple(dict.fromkeys((*found.groups, "system:authenticated"))))
        else:
            user = ANONYMOUS if self.authenticate else ADMIN
        wanted = headers.get("impersonate-user", "")
        if not wanted:
            return user
        for resource, name in (("users", wanted), *(("groups", group) for group in groups)):
            access = Access(user.name, "impersonate", "", resource, "", "", name, "")
            if not self.allows(user, access):
                raise refusal(user, access)
        return User(wanted, (*groups, "system:authenticated"))

    def allows(self, user: User, access: Access) -> bool:
        if "system:masters" in user.groups:
            return True
        if not access.resource and access.verb == "get":
            known = "system:authenticated" in user.groups
            if any(access.path == p or access.path.startswith(p + "/") for p in _PUBLIC):
                return True
            if known and any(access.path == p or access.path.startswith(p + "/") for p in _DISCOVERY):
                return True
        asks_of_itself = access.resource in ("selfsubjectaccessreviews", "selfsubjectreviews")
        if asks_of_itself and "system:authenticated" in user.groups:
            return True
        for name in (user.name, *user.groups):
            if any(rule.allows(access) for rule in self.rules.get(name, ())):
                return True
        return any(rule.allows(access) for rule in self._bound(user))

    def check(self, user: User, access: Access) -> None:
        """ApiError 403 where the user may not."""
        if not self.allows(user, access):
            raise refusal(user, access)

    def _bound(self, user: User) -> Iterable[Rule]:
        """Rules of the Roles and ClusterRoles that bindings in the store give to this user."""
        for binding in self._store.list("ClusterRoleBinding"):
            if _subject(binding, user):
                yield from self._role(binding, None)
        for binding in self._store.list("RoleBinding"):
            if _subject(binding, user):
                yield from self._role(binding, binding["metadata"]["namespace"])

    def _role(self, binding: Object, namespace: str | None) -> Iterable[Rule]:
        ref = binding.get("roleRef") or {}
        kind, inner = ref.get("kind", "ClusterRole"), None
        if kind == "Role":
            inner = namespace
        role = self._store.find(kind, ref.get("name", ""), inner)
        for rule in (role or {}).get("rules") or ():
            yield Rule.of(rule, None if namespace is None else (namespace,))


def _subject(binding: Object, user: User) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject.get("kind"), subject.get("name", "")
        if kind == "User" and name == user.name:
            return True
        if kind == "Group" and name in user.groups:
            return True
        if kind == "ServiceAccount":
            space = subject.get("namespace") or binding["metadata"].get("namespace", "")
            if user.name == f"system:serviceaccount:{space}:{name}":
                return True
    return False


def refusal(user: User, access: Access) -> ApiError:
    if not access.resource:
        why = f'forbidden: User "{user.name}" cannot {access.verb} path "{access.path}"'
        return ApiError(403, "Forbidden", why, {})
    word = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    where = f'in the namespace "{access.namespace}"' if access.namespace else "at the cluster scope"
    qualified = f"{access.resource}.{access.group}" if access.group else access.resource
    subject = f'{qualified} "{access.name}"' if access.name else qualified
    details: dict[str, Any] = {"name": access.name} if access.name else {}
    if access.group:
        details["group"] = access.group
    details["kind"] = access.resource
    message = (
        f'{subject} is forbidden: User "{user.name}" cannot {access.verb} resource "{word}" in API group '
        f'"{access.group}" {where}'
    )
    return ApiError(403, "Forbidden", message, details)
