"""The http server of the host: from aiohttp's requests to `HttpCall`, and from `HttpReply` back."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

from aiohttp import web

from iii_runtime.adapters.system import Uuid4Source
from iii_runtime.core.http import HttpError, http_error_reply
from iii_runtime.core.payload import MAX_PAYLOAD_BYTES
from iii_runtime.engine.http_entry import HttpCall, HttpEntry
from iii_runtime.hosts.embedded.listener import Listener, ListeningServer, to_response
from iii_runtime.hosts.embedded.origins import is_loopback_netloc
from iii_runtime.hosts.embedded.request_body import BODY_TIMEOUT, read_body
from iii_runtime.ports.clock import IdSource

_log = logging.getLogger("iii_runtime.http")
_SETTING = "iii-http in iii-config.yaml"


class HttpServer(ListeningServer):
    """Serves the http triggers, to whoever reaches the address: it verifies nobody, whatever `auth` says.

    A function that a request has started runs to its end, whether its client waits for it or not.

    Args:
        entry: Answers the requests.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        ids: Where the ids of errors come from that the entry never sees.
        body_limit_bytes: Largest body; a larger one is answered 413 without being read to its end.
        body_timeout: How long the whole body of a request may take; then 408.
    """

    def __init__(
        self,
        entry: HttpEntry,
        host: str,
        port: int,
        *,
        ids: IdSource | None = None,
        body_limit_bytes: int = MAX_PAYLOAD_BYTES,
        body_timeout: timedelta = BODY_TIMEOUT,
    ) -> None:
        self._entry = entry
        self._ids = ids or Uuid4Source()
        self._body_limit_bytes = body_limit_bytes
        self._body_timeout = body_timeout
        super().__init__(Listener(self._answer, host=host, port=port, setting=_SETTING, ids=self._ids))

    async def start(self) -> None:
        """Listen. Beyond this machine with routes that not everybody may call, a warning in the log names them.

        Raises:
            HostError: `port_in_use`, `port_forbidden`, `host_invalid` or `listen_failed`, with what to do.
        """
        await super().start()
        routes = self._entry.guarded_routes()
        if routes and not is_loopback_netloc(self.address):
            fields = {"address": self.address, "routes": list(routes)}
            _log.warning("auth is not checked here: whoever reaches the address may call", extra={"iii": fields})

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path, query = _target(request.raw_path)
        call = HttpCall(
            method=request.method.upper(),
            path=path,
            query=query,
            headers=tuple((_text(name), _text(value)) for name, value in request.raw_headers),
        )
        try:
            body = await read_body(request, limit_bytes=self._body_limit_bytes, timeout=self._body_timeout)
        except HttpError as error:
            refused = http_error_reply(error, self._ids.new_id())
            return to_response(self._entry.with_cors(call, refused), closes=True)
        return to_response(await self._entry.handle(replace(call, body=body)))


def _target(raw: str) -> tuple[str, str]:
    """Split a request target into path and query, every byte that is not printable ASCII percent-encoded."""
    encoded = "".join(
        chr(byte) if 0x20 < byte < 0x7F else f"%{byte:02X}" for byte in raw.encode("utf-8", "surrogateescape")
    )
    path, _, query = encoded.partition("#")[0].partition("?")
    if "://" in path and not path.startswith("/"):
        path = urlsplit(path).path or "/"
    return path, query


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")
