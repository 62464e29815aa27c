# SPDX-License-Identifier: Apache-2.0
"""An admin REST in this process, on loopback, that answers what a test tells it to."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any


class AdminStub:
    """Answers by path; what it does not know is 404.

    Attributes:
        answers: By method and path with its query, such as ``GET /admin/v2/...``: a
            status with a value for the body, or the text of a Location for 307.
        asked: Method, path and header Authorization of each request.
    """

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, str, str]] = []
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_DELETE(self) -> None:
                self._answer()

            def _answer(self) -> None:
                who = self.headers.get("Authorization", "")
                stub.asked.append((self.command, self.path, who))
                status, value = stub.answers.get(
                    f"{self.command} {self.path}", (404, {"reason": "not there"})
                )
                self.send_response(status)
                body = b""
                if status == 307:
                    self.send_header("Location", value)
                elif value is not None:
                    body = (
                        value
                        if isinstance(value, bytes)
                        else json.dumps(value).encode()
                    )
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """``http://host:port``."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> AdminStub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
