"""One HTML file that needs no other file: the shell, its security policy, and its payloads."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import zlib
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import to_builtins

from pytest_torchprof.text import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SCRIPTS: Final = (
    *("words.js", "table.js"),
    *("recording.js", "painting.js", "details.js", "selection.js", "timeline.js", "flame.js"),
    *("tests.js", "sections.js", "page.js"),
)
STYLES: Final = ("style.css", "drawing.css")
_FOLDER: Final = Path(__file__).parent
_PLACE: Final = re.compile(r"\{\{(\w+)\}\}")


def document(
    *,
    title: str,
    body: str,
    payloads: Mapping[str, bytes],
    scripts: Iterable[str] = SCRIPTS,
    styles: Iterable[str] = STYLES,
) -> str:
    """Return the file; ``body`` is HTML, each payload compressed bytes that the script asks for by their id."""
    script, style = f'"use strict";{_joined(scripts)}', _joined(styles)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": text(title),
        "style": style,
        "body": body,
        "payloads": "\n".join(_embedded(name, payload) for name, payload in payloads.items()),
        "script": script,
    }
    # In one pass: what is put in is not looked at again.
    return _PLACE.sub(lambda place: parts[place[1]], (_FOLDER / "page.html").read_text(encoding="utf-8"))


def text(value: str, longest: int = 300) -> str:
    """Return a text as HTML that only shows it: names from traces and test ids are data."""
    return escape(printable_line(value, longest))


def as_json(value: object) -> bytes:
    """Return the facts for the page's script as JSON in ASCII; a number that is not finite is null."""
    # Texts from traces may have lone surrogates, which msgspec has no JSON for.
    plain = to_builtins(value, enc_hook=str, str_keys=True)
    return json.dumps(_finite(plain), separators=(",", ":"), allow_nan=False).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def compressed(content: bytes) -> bytes:
    """Return a payload as the page unpacks it."""
    return zlib.compress(content, 6)


def _embedded(name: str, payload: bytes) -> str:
    # Browsers run no script of this type: the content is text to them.
    return f'<script type="application/octet-stream" id="{name}">{base64.b64encode(payload).decode()}</script>'


def _joined(files: Iterable[str]) -> str:
    return "\n" + "\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in files)


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
