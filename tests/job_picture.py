"""The picture of a job's summary on docs/ci.md: what the plugin wrote, in the picture's own file too.

``pip install cmarkgfm && python tests/job_picture.py SUMMARY.md`` makes it anew from a file that a run has written
where ``GITHUB_STEP_SUMMARY`` says. cmark-gfm is the renderer of GitHub's; the frame around it is neutral, since what
GitHub's own page looks like cannot be made without GitHub.
"""

from __future__ import annotations

import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

PICTURE: Final = Path(__file__).parents[1] / "docs" / "static" / "job-summary.png"
_KEYWORD: Final = b"Summary"
_SIGNATURE_BYTES: Final = 8
_FRAME: Final = """<!doctype html><meta charset=utf-8><style>
body { margin: 0; padding: 20px; background: #eef0f2; font: 15px/1.5 sans-serif; color: #1b1f24; }
article { background: #fff; border: 1px solid #c8cdd3; padding: 14px 20px; }
h4 { margin: 14px 0 8px; font-size: 16px; }
p { margin: 0; }
pre { margin: 0; padding: 12px; background: #f6f7f8; overflow: hidden; font: 12.5px/1.45 monospace; }
</style><article>{summary}</article>
<script>document.documentElement.dataset.ready = "true";</script>"""


def make(summary: str) -> None:
    """Draw a summary, and keep its Markdown in the picture."""
    import cmarkgfm  # Reading a picture needs none.

    with tempfile.TemporaryDirectory() as scratch, Browser() as browser:
        page = Path(scratch, "summary.html")
        page.write_text(_FRAME.replace("{summary}", cmarkgfm.github_flavored_markdown_to_html(summary)), "utf-8")
        browser.open(page, width=1100, height=300)
        browser.look(1100, browser.run("document.documentElement.scrollHeight"))
        browser.screenshot(PICTURE)
    drawn = PICTURE.read_bytes()
    end = len(drawn) - 12
    PICTURE.write_bytes(drawn[:end] + _chunk(b"iTXt", _KEYWORD + b"\0" * 5 + summary.encode()) + drawn[end:])


def summary_in_picture() -> str:
    """Return the Markdown that the picture was made from."""
    (text,) = (data for kind, data in _chunks(PICTURE.read_bytes()) if kind == b"iTXt" and data.startswith(_KEYWORD))
    return text[len(_KEYWORD) + 5 :].decode()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = _SIGNATURE_BYTES
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += 12 + length


if __name__ == "__main__":
    make(Path(sys.argv[1]).read_text("utf-8"))
