"""The base class of groups of settings, and what each setting means."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Explained(BaseModel):
    """Settings whose meanings stand under them in the source.

    They are read from there when they are shown. pydantic's own way (use_attribute_docstrings) reads them
    whenever a program starts, which takes as long as all other settings together.
    """

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """What each setting means, by the name of its field."""
        (definition,) = ast.parse(inspect.getsource(cls)).body
        assert isinstance(definition, ast.ClassDef)
        return {
            field.target.id: inspect.cleandoc(text.value.value)
            for field, text in pairwise(definition.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Adds the meanings. A default of no value is the word for it, as in YAML."""
        reference = handler(core_schema)
        properties = handler.resolve_ref_schema(reference)["properties"]
        for shown in properties.values():
            if "default" in shown and shown["default"] is None:
                shown["default"] = "none"
        for name, text in cls.meanings().items():
            properties[cls.model_fields[name].alias or name]["description"] = text
        return reference


class Group(Explained):
    """A group of settings. An unknown key is an error."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
    )
