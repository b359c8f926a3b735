"""``torchprof open FILE``: the recording in Perfetto's user interface."""

from __future__ import annotations

import os
import secrets
import sys
import time
import webbrowser
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from pytest_torchprof.cli import whole
from pytest_torchprof.reasons.errors import TorchprofError
from pytest_torchprof.report.perfetto import with_lanes

if TYPE_CHECKING:
    from argparse import Namespace

    from pytest_torchprof.cli import Parser

PORT: Final = 9001
"""The port that the page's security policy allows it to read from."""
_PAGE: Final = "https://ui.perfetto.dev"
_POLL_S = 0.5
_SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
"""Variables that show on Linux that a browser can open."""

_DESCRIPTION: Final = """\
Shows a recording in Perfetto's user interface, https://ui.perfetto.dev. The page reads it from this machine,
over 127.0.0.1:9001, the address that its rules allow; the recording is not uploaded. It is handed out once,
then the command ends. Kernels that overlap have lanes of their own, as torchprof export --lanes writes them."""
_EPILOG: Final = """\
example:
  torchprof open trace.json.gz

exit status: 0, or 2 if the file cannot be read, the port is taken or nobody asked for the recording"""


def add_arguments(parser: Parser) -> None:
    """Declare the command's arguments."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("path", metavar="FILE", help="the recording")
    parser.add_argument(
        "--wait", type=whole(1), default=300, metavar="SECONDS", help="how long to wait for the page to ask (300)"
    )


def run(arguments: Namespace) -> int:
    """Run the command; return its exit status."""
    path, wait = arguments.path, arguments.wait
    recording = with_lanes(path)
    # Other users of the machine can reach the port too, but do not know the path.
    url_path = f"/{secrets.token_urlsafe(16)}/{quote(os.path.basename(path).removesuffix('.gz'))}"  # noqa: PTH119 - see recording
    once = _Once(url_path, recording.content)
    with _listening(once) as server:
        link = f"{_PAGE}/#!/?url=http://127.0.0.1:{PORT}{url_path}"
        # Standard output is written only when the command has ended.
        sys.stderr.write(f"{recording.summary}\n{link}\n")
        if sys.platform != "linux" or any(map(os.environ.get, _SCREENS)):
            # Without a screen it would start a browser that takes over the terminal.
            webbrowser.open(link)
        until = time.monotonic() + wait
        while not once.done and time.monotonic() < until:
            server.handle_request()
        if not once.done:
            from pytest_torchprof.reasons.files_asked import NobodyAsked  # noqa: PLC0415 - only a failure needs it

            raise TorchprofError.because(NobodyAsked(path, wait))
    return 0


class _Once:
    """The content that is served once, and whether it was."""

    def __init__(self, url_path: str, content: bytes) -> None:
        self.url_path = url_path
        self.content = content
        self.done = False


class _Handler(BaseHTTPRequestHandler):
    """Serves one file to Perfetto's page, and nothing to anybody else."""

    timeout = 10
    """Seconds after which a connection that sends nothing is dropped."""

    def __init__(self, once: _Once, *arguments: Any) -> None:
        self._once = once
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Serve the file."""
        # A page that reaches this address by another host name is not Perfetto's.
        addressed = self.headers.get("Host") in (f"127.0.0.1:{PORT}", f"localhost:{PORT}")
        if self.path != self._once.url_path or not addressed:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        self._answer(
            HTTPStatus.OK, {"Content-Type": "application/json", "Content-Length": str(len(self._once.content))}
        )
        with suppress(ConnectionError):
            self.wfile.write(self._once.content)
            self._once.done = True

    def do_OPTIONS(self) -> None:
        """Answer the question that a browser asks before a public page may read from this machine."""
        self._answer(HTTPStatus.NO_CONTENT, {"Access-Control-Allow-Private-Network": "true"})

    def _answer(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Access-Control-Allow-Origin": _PAGE, "Cache-Control": "no-store", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Write nothing about requests."""


def _listening(once: _Once) -> HTTPServer:
    try:
        server = HTTPServer(("127.0.0.1", PORT), partial(_Handler, once))
    except OSError as error:
        from pytest_torchprof.reasons.files_asked import PortTaken  # noqa: PLC0415 - only a failure needs it

        raise TorchprofError.because(PortTaken(PORT, str(error.strerror))) from None
    server.timeout = _POLL_S
    return server
