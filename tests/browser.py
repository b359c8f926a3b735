"""A headless Chromium, driven over its debugging pipe: what pages show, say and ask the network for."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# What reaches beyond the window, or beyond a box that does not scroll; tables scroll by themselves.
_CUT = """[...document.querySelectorAll('body *')].filter((e) => e.checkVisibility() && !e.closest('.skip, .unseen, .scroll, .tl-wide, canvas, svg')
  && (e.getBoundingClientRect().right > innerWidth + 0.5 || (e.matches('pre, nav, p, h1, h2, h4, li, dd, dt, figcaption, summary, button, code') && e.clientWidth && e.scrollWidth > e.clientWidth + 1)))
  .map((e) => `${e.tagName} ${e.className}: ${e.textContent.slice(0, 60)}`)"""
# The colour and the pattern of elements, as far as they have a width.
_FILLS = """[...document.querySelectorAll(SELECTOR)].map((element) => getComputedStyle(element)).filter(({width}) => parseFloat(width) > 0).map((style) => {
  const channels = style.backgroundColor.match(/\\d+/g).slice(0, 3).map((channel) => Number(channel).toString(16).padStart(2, "0"));
  return [`#${channels.join("")}`, style.backgroundImage];
})"""
# What is kept of pages that were left, and processes that are started before anybody asks for another page.
_FOR_A_NEXT_PAGE = ("BackForwardCache", "PaintHolding", "RenderDocument", "SpareRendererForSitePerProcess")
# Of a page, counted from its start.
_PATIENCE_MS = 60_000


class Browser:
    """One window; leaving the ``with`` ends it."""

    def __init__(self) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        self.requests: list[str] = []
        """What the pages opened so far asked for, apart from themselves."""
        self.complaints: list[str] = []
        """What they or the browser said on the console that is an error, violations of the security policy too."""
        self._number = 0
        self._buffer = b""
        self._session = ""

    def __enter__(self) -> Self:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        command = [
            *(str(CHROMIUM), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
            *("--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking"),
            f"--disable-features={','.join(_FOR_A_NEXT_PAGE)}",
            *(
                f"--user-data-dir={self._profile.name}",
                "--hide-scrollbars",
                "--force-device-scale-factor=1",
                "about:blank",
            ),
        ]

        def place_pipes() -> None:
            # Where the browser looks for them; moved up first, since one of them may stand there already.
            high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
            for end, place in zip(high, (3, 4), strict=True):
                os.dup2(end, place)

        self._process = subprocess.Popen(
            command,
            preexec_fn=place_pipes,  # noqa: PLW1509 - nothing but system calls
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            part = os.read(self._in, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event: dict[str, Any]) -> None:
        said, params = event.get("method"), event.get("params", {})
        if said == "Network.requestWillBeSent":
            url = params["request"]["url"]
            if params.get("type") != "Document" and not url.startswith("data:"):
                self.requests.append(url)
        elif said == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif said == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([argument.get("value") for argument in params["args"]]))
        elif said == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])

    def open(self, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False, fragment: str = "") -> None:
        """Show a page and wait until its script is done with it."""
        self.look(width, height, dark=dark)
        # Another fragment of the same page would not load it again.
        self._call("Page.navigate", url="about:blank")
        self._call("Page.navigate", url=page.resolve().as_uri() + fragment)
        self.wait("document.documentElement.dataset.ready === 'true'")

    def look(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Make the window so large, and light or dark."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self._call("Emulation.setEmulatedMedia", features=theme)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the debugging protocol that has no function here; return its result."""
        return self._call(method, **params)

    def run(self, script: str) -> Any:
        """Return what an expression, which may be a promise, comes to; its errors are this one's."""
        found = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description"))
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression holds."""
        wanted = """new Promise((done, fail) => {
            const look = () => {
                let holds = false;
                try { holds = CONDITION; } catch {}
                if (holds) done(true);
                else if (performance.now() > PATIENCE) fail(new Error("it never came"));
                else setTimeout(look, 20);
            };
            look();
        })""".replace("CONDITION", condition).replace("PATIENCE", str(_PATIENCE_MS))
        try:
            self.run(wanted)
        except RuntimeError as error:
            raise RuntimeError(f"{condition}: {error}; console: {self.complaints}") from None

    def cut(self) -> list[str]:
        """Return what of the page is cut at this width, the page itself if it scrolls sideways."""
        wide = self.run("document.documentElement.scrollWidth") - self.run("innerWidth")
        return [*([f"the page, by {wide} pixels"] if wide > 0 else []), *self.run(_CUT)]

    def sideways(self) -> list[str]:
        """Return the tables that scroll sideways at this width."""
        return self.run(
            "[...document.querySelectorAll('.scroll')].filter((e) => e.checkVisibility() && e.scrollWidth > e.clientWidth + 1)"
            ".map((e) => e.getAttribute('aria-label'))"
        )

    def fills(self, selector: str) -> list[tuple[str, str]]:
        """Return the colour, as ``#rrggbb``, and the pattern of each of these elements."""
        return [(colour, pattern) for colour, pattern in self.run(_FILLS.replace("SELECTOR", json.dumps(selector)))]

    def press(self, key: str) -> None:
        """Press and release a key."""
        codes = {"Enter": 13, "Tab": 9, "Escape": 27}
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            self._call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes.get(key, 0), **more)

    def click(self, selector: str) -> None:
        """Click on the middle of an element, of its first line where it has several."""
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}}); "
            "const r = e.getClientRects()[0]; return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """Write what is in the window, or the whole page, as PNG."""
        found = self._call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(found["data"]))
