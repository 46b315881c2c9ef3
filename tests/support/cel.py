"""Admission policies as an API server evaluates them: CEL over object, oldObject and request (cel-python).

Only what the policies in deploy/ use: match conditions, variables, validations, and mutations by JSONPatch.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import celpy
from celpy.adapter import CELJSONEncoder, json_to_cel

from tests.support.sandbox.patch import json_patch
from tests.support.scheduler.plain import Json

_ENVIRONMENT = celpy.Environment(annotations={"JSONPatch": celpy.celtypes.MapType})


@cache
def _program(expression: str) -> Any:
    return _ENVIRONMENT.program(_ENVIRONMENT.compile(expression))


def evaluate(expression: str, **names: Any) -> Any:
    """The value of an expression as plain JSON."""
    activation = {name: json_to_cel(value) for name, value in names.items()}
    found = _program(expression).evaluate(activation)
    return json.loads(json.dumps(found, cls=CELJSONEncoder))


def _named(policy: Json, names: Json) -> Json | None:
    """The names that its expressions use, variables included; None where its conditions do not match."""
    spec = policy["spec"]
    if not all(evaluate(c["expression"], **names) for c in spec.get("matchConditions", ())):
        return None
    variables: Json = {}
    for variable in spec.get("variables", ()):
        variables[variable["name"]] = evaluate(variable["expression"], **names, variables=variables)
    return {**names, "variables": variables}


def refusals(policy: Json, old: Json, new: Json, user: str) -> list[str]:
    """The messages of the validations that refuse an update by this user."""
    names = _named(policy, {"object": new, "oldObject": old, "request": {"userInfo": {"username": user}}})
    if names is None:
        return []
    return [v["message"] for v in policy["spec"]["validations"] if not evaluate(v["expression"], **names)]


def mutated(policy: Json, new: Json) -> Json:
    """An object as a MutatingAdmissionPolicy leaves it when it is created."""
    for mutation in policy["spec"]["mutations"]:
        names = _named(policy, {"object": new, "request": {"operation": "CREATE"}})
        if names is not None:
            operations = evaluate(mutation["jsonPatch"]["expression"], **names)
            new = json_patch(new, operations)
    return new
