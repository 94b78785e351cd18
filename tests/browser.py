"""A headless Chromium for tests of pages: opens them, waits, reads their text, takes pictures.

Speaks the DevTools protocol over two pipes, so it needs the browser and nothing else. It reaches files and servers of
this machine only.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

EXECUTABLE = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless=new",
    "--no-sandbox",  # the tests may run as root, in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--proxy-server=127.0.0.1:9",  # nothing listens there: a page that asks for anything outside fails
    "--remote-debugging-pipe",
)


class PageError(AssertionError):
    """A page threw, logged an error, or did not get where the test waited for."""


class Browser:
    """One page of a headless browser, as a context manager.

    Args:
        size_px: (width, height) of the page's window.

    Attributes:
        errors: Uncaught exceptions, errors on the console and requests that failed, in the order they came.
    """

    def __init__(self, size_px: tuple[int, int] = (1000, 800)) -> None:
        self.errors: list[str] = []
        self._size_px = size_px
        self._stack = ExitStack()
        self._last_id = 0
        self._received = b""
        self._session: str | None = None

    def __enter__(self) -> Browser:
        assert EXECUTABLE is not None, "chromium is not installed"
        profile = self._stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
        child_in, self._write_fd = os.pipe()
        self._read_fd, child_out = os.pipe()
        command = [EXECUTABLE, *FLAGS, f"--user-data-dir={profile}"]
        # The browser expects its ends of the pipes at descriptors 3 and 4; the shell puts them there.
        shell = ["bash", "-c", f'exec "$@" 3<&{child_in} 4>&{child_out}', "bash", *command, "about:blank"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(shell, stdin=quiet, stdout=quiet, stderr=quiet, pass_fds=(child_in, child_out))
        os.close(child_in)
        os.close(child_out)
        targets = self._call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self._call(f"{domain}.enable")
        width, height = self._size_px
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write_fd)
        os.close(self._read_fd)
        self._stack.close()

    def open(self, address: str | Path, until: str = "true", timeout_s: float = 60) -> None:
        """Go to a page and wait until it is loaded and a JavaScript expression holds.

        Args:
            address: URL, or a file on this machine.
            until: The expression.
            timeout_s: How long to wait.

        Raises:
            PageError: It never held.
        """
        url = address.resolve().as_uri() if isinstance(address, Path) else address
        failed = self._call("Page.navigate", url=url).get("errorText")
        if failed:
            raise PageError(f"{url}: {failed}")
        self.wait(f"location.href !== 'about:blank' && document.readyState === 'complete' && ({until})", timeout_s)

    def wait(self, until: str, timeout_s: float = 60) -> None:
        """Wait until a JavaScript expression holds.

        Raises:
            PageError: It never held.
        """
        end = time.monotonic() + timeout_s
        while not self.evaluate(f"Boolean({until})"):
            if time.monotonic() > end:
                raise PageError(f"{until} never held; errors: {self.errors}; the page says {self.text()!r}")
            time.sleep(0.05)

    def evaluate(self, expression: str) -> Any:
        """Return the plain value of a JavaScript expression; a promise is awaited.

        Raises:
            PageError: The expression throws.
        """
        reply = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise PageError(_exception_text(reply["exceptionDetails"]))
        return reply["result"].get("value")

    def text(self) -> str:
        """Return the text that a reader of the page sees."""
        return str(self.evaluate("document.body.innerText"))

    def choose_files(self, selector: str, paths: Sequence[Path]) -> None:
        """Put files into the ``<input type=file>`` that a CSS selector names, as a user's choice would."""
        root = self._call("DOM.getDocument")["root"]["nodeId"]
        node = self._call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self._call("DOM.setFileInputFiles", nodeId=node, files=[str(path.resolve()) for path in paths])

    def screenshot(self, path: Path) -> None:
        """Save the window as PNG."""
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"]))

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._last_id += 1
        request = {"id": self._last_id, "method": method, "params": params}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._write_fd, json.dumps(request).encode() + b"\0")
        while (reply := self._read()).get("id") != self._last_id:
            self._note(reply)
        if "error" in reply:
            raise PageError(f"{method}: {reply['error']['message']}")
        return dict(reply["result"])

    def _read(self, timeout_s: float = 60) -> dict[str, Any]:
        while b"\0" not in self._received:
            if not select.select([self._read_fd], [], [], timeout_s)[0]:
                raise PageError(f"the browser said nothing for {timeout_s} s")
            piece = os.read(self._read_fd, 1 << 16)
            if not piece:
                raise PageError(f"the browser went away with exit code {self._process.wait()}")
            self._received += piece
        message, _, self._received = self._received.partition(b"\0")
        return dict(json.loads(message))

    def _note(self, event: dict[str, Any]) -> None:
        kind, params = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.errors.append(_exception_text(params["exceptionDetails"]))
        elif kind == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif kind == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}".strip())
        elif kind == "Network.loadingFailed" and not params.get("canceled"):
            self.errors.append(f"request failed: {params['errorText']}")


def _exception_text(details: dict[str, Any]) -> str:
    return str(details.get("exception", {}).get("description", details["text"]))
