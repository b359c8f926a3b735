"""The documentation as a site: ``pip install -e '.[docs]' && sphinx-build -W docs .site``.

Sphinx, with Furo and MyST, takes the pages as they are: plain Markdown, which GitHub shows, ``torchprof explain``
prints and the tests read. MkDocs Material would do so too, but its end is announced for May 2027.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "pytest-torchprof"
extensions = ["myst_parser", "sphinx_copybutton"]
html_theme = "furo"
html_title = project
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["own-history.html"]
highlight_language = "none"
html_show_sphinx = False
html_show_copyright = False
# Headings are linked to as on GitHub.
myst_heading_anchors = 4
copybutton_prompt_text = "$ "

_DOCS = Path(__file__).parent
# Sphinx looks for it where it was started.
html_search_scorer = str(_DOCS / "scorer.js")
_PARTS = "\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>(?!\w+:)[^)#\s]+)(?P<anchor>#[^)]*)?\)")


def setup(app: Sphinx) -> None:
    """Let the README be the first page, and each link lead to where its target is on the site."""
    app.connect("source-read", _read_page)


def _read_page(_app: Sphinx, page: str, source: list[str]) -> None:
    readme = _with_links((_DOCS.parent / "README.md").read_text(encoding="utf-8"), _DOCS.parent)
    source[0] = (readme if page == "index" else "") + _with_links(source[0], _DOCS)
    if page == "messages":  # Here, since GitHub would show it as code.
        source[0] += _PARTS.format(pages="\n".join(sorted(file.stem for file in _DOCS.glob("messages-*.md"))))


def _with_links(text: str, folder: Path) -> str:
    """Return a page of a folder with links from ``docs/``; what has no page on the site becomes plain words."""

    def lead(link: re.Match[str]) -> str:
        path = (folder / link["target"]).resolve()
        if path.suffix == ".html":  # A page as it is: a link to a file would be one to a copy of it.
            return f'<a href="{path.name}">{link["text"]}</a>'
        if path.is_relative_to(_DOCS):
            return f"[{link['text']}]({path.relative_to(_DOCS).as_posix()}{link['anchor'] or ''})"
        return link[0] if path.is_file() and path.suffix != ".md" else link["text"]

    return _LINK.sub(lead, text)
