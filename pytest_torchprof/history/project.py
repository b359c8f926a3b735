"""The name of a project: where its remote is."""

from __future__ import annotations

import re
from typing import Final

# "https://user:token@host/owner/name.git", "git@host:owner/name.git", "ssh://git@host:22/owner/name".
_REMOTE: Final = re.compile(r"(?:\w[\w+.-]*://)?(?:[^@/]*@)?([^/:]+)(?::\d+(?=/))?[/:]+(.+?)(?:\.git)?/*", re.DOTALL)


def project_at(address: str) -> str | None:
    """Return the project that is at an address of a remote, or whose name that is; None if it is no address."""
    match = _REMOTE.fullmatch(address)
    return f"{match[1].lower()}/{match[2]}" if match else None
