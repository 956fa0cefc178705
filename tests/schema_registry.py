"""A schema registry over real HTTP, on loopback: as much of Confluent's REST API as its Python client asks for.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Schema = dict[str, Any]
Answer = tuple[int, Any]

NOT_FOUND: Answer = (404, {"error_code": 404, "message": "HTTP 404 Not Found"})
"""For a path that is none, as the real one answers it."""
JSON = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry:
    """Schemas by id and by subject, and the server that answers for them.

    Args:
        user: `name:password` that every request must carry; None lets everyone in.

    Attributes:
        asked: `GET /schemas/ids/7` and so on, in order.
        broken: an answer (status, body) that is given to everything, until it is None again.
    """

    def __init__(self, user: str | None = None) -> None:
        self.user, self.broken, self.asked = user, None, []
        self._schemas: list[Schema] = []
        self._subjects: dict[str, list[int]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"registry": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def serving(self) -> Iterator[SchemaRegistry]:
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def answer(self, method: str, path: str, body: Any, authorization: str | None) -> Answer:
        self.asked.append(f"{method} {path}")
        if self.user and authorization != "Basic " + base64.b64encode(self.user.encode()).decode():
            return 401, {"error_code": 401, "message": f"Unauthorized: {authorization}"}
        if self.broken:
            return self.broken
        for (verb, pattern), handle in self._routes().items():
            found = re.fullmatch(pattern, path)
            if verb == method and found:
                return handle(*map(unquote, found.groups()), *([body] if method == "POST" else []))
        return NOT_FOUND

    def _routes(self) -> Mapping[tuple[str, str], Callable[..., Answer]]:
        return {
            ("POST", "/subjects/([^/]+)/versions"): self._register,
            ("POST", "/subjects/([^/]+)"): self._look_up,
            ("GET", "/subjects/([^/]+)/versions/([^/]+)"): self._version,
            ("GET", r"/schemas/ids/(\d+)"): self._by_id,
        }

    def _register(self, subject: str, schema: Schema) -> Answer:
        if schema not in self._schemas:
            self._schemas.append(schema)
        number = self._schemas.index(schema) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return 200, {"id": number}

    def _look_up(self, subject: str, schema: Schema) -> Answer:
        if subject not in self._subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        number = self._schemas.index(schema) + 1 if schema in self._schemas else 0
        if number not in self._subjects[subject]:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, self._registered(subject, number)

    def _version(self, subject: str, version: str) -> Answer:
        if subject not in self._subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        versions = self._subjects[subject]
        wanted = len(versions) if version == "latest" else int(version)
        if wanted > len(versions):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        return 200, self._registered(subject, versions[wanted - 1])

    def _by_id(self, number: str) -> Answer:
        if int(number) >= 2**31:
            return NOT_FOUND
        if int(number) > len(self._schemas):
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 200, self._schemas[int(number) - 1]

    def _registered(self, subject: str, number: int) -> Schema:
        version = self._subjects[subject].index(number) + 1
        return {"subject": subject, "id": number, "version": version, **self._schemas[number - 1]}


class _Handler(BaseHTTPRequestHandler):
    registry: SchemaRegistry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        path, authorization = urlsplit(self.path).path, self.headers.get("Authorization")
        status, found = self.registry.answer(self.command, path, body, authorization)
        content = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", JSON)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """Not into the tests' output."""
