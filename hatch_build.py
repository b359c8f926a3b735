"""What a wheel holds besides the files of the repository: the JSON schemas, made from the types."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SchemasHook(BuildHookInterface[Any]):
    """Writes the schemas into ``pytest_torchprof/schemas`` of a wheel; an editable wheel has the command alone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the schemas, and include them."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from pytest_torchprof.cli.schema import SCHEMAS, schema_text  # noqa: PLC0415 - importable only now

        self._folder = tempfile.TemporaryDirectory()
        for name in SCHEMAS:
            file = Path(self._folder.name, f"{name}.json")
            file.write_text(schema_text(name), encoding="utf-8")
            build_data["force_include"][str(file)] = f"pytest_torchprof/schemas/{name}.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove the schemas that were made."""
        if version != "editable":
            self._folder.cleanup()
