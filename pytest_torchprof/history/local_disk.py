"""Whether a path lies on a disk of this machine, as far as Linux says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/mounts")
_NETWORK: Final = re.compile(
    r"(fuse\.)?(9p|afs|beegfs|ceph|ceph-fuse|cephfs|cifs|gcsfuse|glusterfs|gpfs|juicefs|lustre|ncpfs|nfs|nfs4|ocfs2|"
    r"orangefs|panfs|pvfs2|rclone|s3fs|smb3|smbfs|sshfs|virtiofs|wekafs)"
)
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def network_file_system(path: Path) -> str | None:
    """Return the type of the network file system that a path is on; None on a local disk, or if Linux does not say."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    except OSError:
        return None
    resolved = path.resolve()
    deepest, system = -1, ""
    for line in filter(None, lines):
        _, point, kind, *_ = line.split(" ")
        folder = Path(_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), point))
        # Of two mounts at one folder the later one is seen.
        if resolved.is_relative_to(folder) and len(folder.parts) >= deepest:
            deepest, system = len(folder.parts), kind
    return system if _NETWORK.fullmatch(system) else None
