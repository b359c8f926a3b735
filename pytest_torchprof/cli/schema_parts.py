"""The parts of JSON schemas."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection

DRAFT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
TEXT, WHOLE, NUMBER, BOOL = ({"type": name} for name in ("string", "integer", "number", "boolean"))
ANY: Schema = {}


def nullable(schema: Schema) -> Schema:
    """Return the schema of a value that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def listed(schema: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def mapped(schema: Schema) -> Schema:
    """Return the schema of an object with any keys."""
    return {"type": "object", "additionalProperties": schema}


def fields(schemas: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Return the schema of an object with these fields; all of ``schemas`` are required."""
    return {"type": "object", "properties": {**schemas, **(optional or {})}, "required": list(schemas)}


def every(names: str, schema: Schema) -> dict[str, Schema]:
    """Return fields of these names, all with the same schema."""
    return dict.fromkeys(names.split(), schema)


def of_type(kind: type, *, whole: bool = True, apart: Collection[type] = ()) -> Schema:
    """Return the schema of one of our types; ``whole``: as it is printed, with every field.

    Types ``apart`` are only referred to, by their names in ``$defs``.
    """
    schema = {**_described(kind)}
    defs = schema.pop("$defs")
    named = {f"#/$defs/{other.__name__}" for other in apart}
    resolved: Schema = _resolved(schema, defs, whole, named)
    return resolved


@cache
def _described(kind: type) -> Schema:
    # It goes through all reasons that a field may have, each time that one of them is met.
    return msgspec.json.schema(kind)


def tagged(tag: str) -> Schema:
    """Return the schema of an object whose field ``tag`` names its kind, on which its other fields depend."""
    return {"type": "object", "required": [tag], "additionalProperties": True}


def _resolved(schema: Any, defs: Schema, whole: bool, named: Collection[str]) -> Any:
    if isinstance(schema, list):
        return [_resolved(item, defs, whole, named) for item in schema]
    if not isinstance(schema, dict) or schema.get("$ref") in named:
        return schema
    if "discriminator" in schema:  # Each kind has other fields.
        return tagged(schema["discriminator"]["propertyName"])
    if "$ref" in schema:
        return _resolved(defs[schema["$ref"].removeprefix("#/$defs/")], defs, whole, named)
    schema = {name: value for name, value in schema.items() if name not in ("title", "default")}
    resolved = {name: _resolved(value, defs, whole, named) for name, value in schema.items() if name != "properties"}
    if (properties := schema.get("properties")) is not None:
        resolved["properties"] = {name: _resolved(value, defs, whole, named) for name, value in properties.items()}
        resolved.pop("additionalProperties", None)
        if whole:
            resolved["required"] = list(resolved["properties"])
    return resolved


def root(title: str, version: int, schema: Schema) -> Schema:
    """Return a schema with its draft, its title, and the version of the format that it describes."""
    return {"$schema": DRAFT, "title": f"{title}, schema {version}", **schema}
