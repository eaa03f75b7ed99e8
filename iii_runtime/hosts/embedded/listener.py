"""One listening socket with aiohttp behind it: how the servers of the host open, answer, drain and close."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any, TypeAlias

from aiohttp import web

from iii_runtime.core.errors import HostError
from iii_runtime.core.http import HttpReply, error_reply, unavailable
from iii_runtime.ports.clock import IdSource

SERVER_NAME = "iii-runtime"

_log = logging.getLogger("iii_runtime.http")
_BACKLOG = 128
_IDLE_SECONDS = 75.0
_LAST_WORDS_SECONDS = 1.0
"""After the grace period: how long answers that are being written may take."""

Answer: TypeAlias = Callable[[web.BaseRequest], Coroutine[Any, Any, web.StreamResponse]]
Refuse: TypeAlias = Callable[[int, str, str], web.StreamResponse]


class Listener:
    """Accepts connections on one address and answers their requests with one function.

    A request goes on when its client disconnects. A request that is not http is answered 400 with the error envelope,
    and an answer that fails is logged and becomes a 500; neither ends the listener.

    Args:
        answer: Answers one request.
        host: Address or name to listen on; of a name with several addresses an IPv4 one is taken.
        port: Port to listen on; 0 takes a free one.
        setting: Where the user sets `host` and `port`; None if nobody does. It ends the message of the error.
        ids: Where error ids come from.
    """

    def __init__(self, answer: Answer, *, host: str, port: int, setting: str | None, ids: IdSource) -> None:
        self._answer = answer
        self._host = host
        self._port = port
        self._setting = setting
        self._ids = ids
        self._socket_name: tuple[str, int] | None = None
        self._runner: web.ServerRunner | None = None
        self._site: web.SockSite | None = None
        self._active: set[asyncio.Task[web.StreamResponse]] = set()
        self._stopping = asyncio.Event()

    @property
    def port(self) -> int:
        """The port that is bound; only after `start`."""
        return self._bound()[1]

    @property
    def address(self) -> str:
        """`host:port` as bound, an IPv6 host in brackets; only after `start`."""
        host, port = self._bound()
        return _joined(host, port)

    async def start(self) -> None:
        """Bind and accept.

        Raises:
            HostError: `port_in_use`, `port_forbidden`, `host_invalid` or `listen_failed`, with what to do.
        """
        bound = await self._bind()
        self._socket_name = bound.getsockname()[:2]
        self._runner = web.ServerRunner(_Server(self._handle, self._refuse), shutdown_timeout=_LAST_WORDS_SECONDS)
        await self._runner.setup()
        self._site = web.SockSite(self._runner, bound, backlog=_BACKLOG)
        await self._site.start()

    async def stop_accepting(self) -> None:
        """Close the socket. Requests on connections that are open already get 503 from now on."""
        self._stopping.set()
        if self._site is not None:
            await self._site.stop()
            self._site = None

    async def stop(self, grace: timedelta) -> None:
        """Stop accepting, wait for active requests at most `grace`, then cancel the rest and close every connection."""
        await self.stop_accepting()
        if self._active:
            _, late = await asyncio.wait(self._active, timeout=grace.total_seconds())
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._stopping.is_set():
            return self._stopped()
        # A task of its own: the work outlives its connection, and is still waited for at the end.
        task = asyncio.create_task(self._answer(request))
        self._active.add(task)
        task.add_done_callback(self._active.discard)
        try:
            response = await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            return self._stopped()
        if self._stopping.is_set():
            response.force_close()
        return response

    def _stopped(self) -> web.Response:
        reply = unavailable("the host is stopping", 1, self._ids.new_id())
        return to_response(reply, closes=True)

    def _refuse(self, status: int, code: str, message: str) -> web.Response:
        return to_response(error_reply(status, code, message, self._ids.new_id()), closes=True)

    async def _bind(self) -> socket.socket:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
            bound = socket.socket(family, kind, protocol)
        except (OSError, UnicodeError, OverflowError) as error:
            raise self._unavailable(error) from error
        try:
            if os.name == "posix":
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setblocking(False)
            bound.bind(address)
            bound.listen(_BACKLOG)
        except (OSError, OverflowError) as error:
            bound.close()
            raise self._unavailable(error) from error
        return bound

    def _unavailable(self, error: Exception) -> HostError:
        place = _joined(self._host, self._port)
        number = error.errno if isinstance(error, OSError) and not isinstance(error, socket.gaierror) else None
        if number == errno.EADDRINUSE:
            code, what = "port_in_use", f"{place} is in use by another process"
        elif number in (errno.EACCES, errno.EPERM):
            code, what = "port_forbidden", f"this user may not listen on {place}; ports below 1024 are privileged"
        elif number == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror | UnicodeError | OverflowError):
            code, what = "host_invalid", f"{place} is no address of this machine ({error})"
        else:
            code, what = "listen_failed", f"cannot listen on {place}: {error}"
        return HostError(f"{what}. {self._remedy(code)}", code=code)

    def _remedy(self, code: str) -> str:
        if self._setting is None:
            return "The host needs one free port on the loopback interface."
        if code == "host_invalid":
            return f"Set `host` of {self._setting} to an address of this machine, and `port` to 0 to 65535."
        another = f"et another `host` or `port` (0 takes a free one) of {self._setting}."
        return f"Stop that process, or s{another}" if code == "port_in_use" else f"S{another}"

    def _bound(self) -> tuple[str, int]:
        if self._socket_name is None:
            raise RuntimeError("the server is not started")
        return self._socket_name


class ListeningServer:
    """A server of the host behind a listener: opens, drains and closes with it.

    Args:
        listener: Where it listens.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    @property
    def port(self) -> int:
        """The port that is bound; only after `start`."""
        return self._listener.port

    @property
    def address(self) -> str:
        """`host:port` as bound, an IPv6 host in brackets; only after `start`."""
        return self._listener.address

    async def start(self) -> None:
        """Listen.

        Raises:
            HostError: `port_in_use`, `port_forbidden`, `host_invalid` or `listen_failed`, with what to do.
        """
        await self._listener.start()

    async def stop_accepting(self) -> None:
        """Accept no connections; requests on open ones get 503. Active requests go on."""
        await self._listener.stop_accepting()

    async def stop(self, grace: timedelta) -> None:
        """Stop accepting, wait for active requests at most `grace`, answer the rest with 503 and close."""
        await self._listener.stop(grace)


def to_response(reply: HttpReply, *, closes: bool = False) -> web.Response:
    """Return a reply as aiohttp sends it; `closes` ends the connection after it. The body of HEAD is left out there."""
    response = web.Response(status=reply.status, body=reply.body or None)
    for name, value in reply.headers:
        response.headers.add(name, value)
    response.headers.setdefault("Server", SERVER_NAME)
    if closes:
        response.force_close()
    return response


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Server(web.Server):
    """aiohttp's server, with answers of our own to what is no http and to what went wrong."""

    def __init__(self, handler: Answer, refuse: Refuse) -> None:
        super().__init__(handler)
        self._refuse = refuse

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, self._refuse)


class _Connection(web.RequestHandler):
    __slots__ = ("_refuse",)

    def __init__(self, server: _Server, refuse: Refuse) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=_IDLE_SECONDS,
            access_log=None,  # type: ignore[arg-type]
            auto_decompress=False,
        )
        self._refuse = refuse

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what never became a request, or a request whose answer failed."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        if status < 500:
            shown = (message or "bad request").partition("\n")[0][:200]
            _log.warning("not http", extra={"iii": {"remote": request.remote, "error": shown}})
            return self._refuse(status, "BAD_REQUEST", f"the request is not valid http: {shown!a}")
        _log.error("the host failed to answer", exc_info=exc, extra={"iii": {"path": request.path}})
        return self._refuse(500, "INTERNAL_ERROR", "the host failed to answer; its log says why")
