"""Whether JSON is what its schema says, and nothing else."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from pytest_torchprof.cli.schema import schema_text


@cache
def schema_of(name: str) -> dict[str, Any]:
    """Return the schema as the command prints it."""
    return json.loads(schema_text(name))


def errors(name: str, value: Any) -> list[str]:
    """Return what a value has against its schema, and which fields the schema does not name."""
    return [error.message for error in _validator(name).iter_errors(value)]


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(_closed(schema_of(name)))


def _closed(schema: Any) -> Any:
    """Return a schema that refuses what it does not name, wherever it names something."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _closed(value) for name, value in schema.items()}
    return found | {"additionalProperties": False} if isinstance(schema.get("properties"), dict) else found
