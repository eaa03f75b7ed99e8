"""The WebSocket server for streams: iii's protocol at `/` on a port of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from aiohttp import WSMsgType, web

from iii_runtime.adapters.system import Uuid4Source
from iii_runtime.core.errors import IiiError
from iii_runtime.core.http import HttpReply, error_reply, method_not_allowed, not_found, unavailable
from iii_runtime.core.stream_protocol import (
    MAX_FRAME_BYTES,
    FrameError,
    Leave,
    Subscription,
    parse_frame,
    render_error,
    render_sync,
)
from iii_runtime.hosts.embedded.listener import SERVER_NAME, Listener, ListeningServer, to_response
from iii_runtime.hosts.embedded.stream_hub import (
    INTERNAL_ERROR,
    TOO_SLOW,
    TRY_AGAIN_LATER,
    StreamClient,
    StreamHub,
)
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.stream_store import StreamStore

_log = logging.getLogger("iii_runtime.stream")
_SETTING = "iii-stream in iii-config.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPatience:
    """How long the server bears with a client.

    Attributes:
        heartbeat: Time between pings; half of it may pass until the pong. A client that asks for more than it reads for
            this long is closed.
        goodbye: Time a closed client has to take part in the closing; then the connection is cut.
    """

    heartbeat: timedelta = timedelta(seconds=20)
    goodbye: timedelta = timedelta(seconds=5)


class StreamServer(ListeningServer):
    """Lets clients join groups and items of streams; see `StreamHub` for what they are guaranteed.

    The frames of one client are handled in order, the next one once most of the answers to the last one were taken.
    A connection that misses a heartbeat is closed. Refusals before the upgrade carry the error envelope: 403 for an
    origin, 404 for a path other than `/`, 426 for a request that is no WebSocket, 503 at the limit of connections.

    Args:
        hub: Where `push` happens.
        store: Where sync frames are read from.
        clock: Times the sync frames.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        allowed_origins: Whether a page of an origin may connect, see `origin_rule`. Without an `Origin` header it is
            no browser, and may.
        ids: Where error ids come from.
        patience: Its timeouts.
    """

    def __init__(
        self,
        hub: StreamHub,
        store: StreamStore,
        clock: Clock,
        host: str,
        port: int,
        *,
        allowed_origins: Callable[[str], bool],
        ids: IdSource | None = None,
        patience: StreamPatience | None = None,
    ) -> None:
        self._hub = hub
        self._store = store
        self._clock = clock
        self._allowed_origins = allowed_origins
        self._ids = ids or Uuid4Source()
        self._patience = patience or StreamPatience()
        super().__init__(Listener(self._answer, host=host, port=port, setting=_SETTING, ids=self._ids))

    async def stop(self, grace: timedelta) -> None:
        """Stop accepting, close every connection with code 1001, wait for that at most `grace`."""
        await self.stop_accepting()
        self._hub.close("the host is stopping")
        await super().stop(grace)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        refused = self._refused(request)
        if refused is not None:
            return to_response(refused, closes=True)
        client = self._hub.admit()
        if client is None:
            return to_response(unavailable("no further connections are accepted", 1, self._ids.new_id()), closes=True)
        try:
            return await self._serve(request, client)
        finally:
            self._hub.dismiss(client)

    def _refused(self, request: web.BaseRequest) -> HttpReply | None:
        error_id = self._ids.new_id()
        if request.path != "/":
            return not_found(request.method, request.path, error_id)
        if request.method != "GET":
            return method_not_allowed(request.method, request.path, ["GET"], error_id)
        origin = request.headers.get("Origin")
        if origin is not None and not self._allowed_origins(origin):
            message = f"pages of {origin[:200]!a} may not connect; add the origin to `cors` of iii-http"
            return error_reply(403, "ORIGIN_NOT_ALLOWED", message, error_id)
        if request.headers.get("Upgrade", "").strip().lower() != "websocket":
            message = "this port speaks WebSocket: connect to ws://host:port/ and send join frames"
            reply = error_reply(426, "UPGRADE_REQUIRED", message, error_id)
            return replace(reply, headers=(*reply.headers, ("Upgrade", "websocket")))
        if not web.WebSocketResponse().can_prepare(request):
            message = "not a WebSocket handshake of version 13"
            return error_reply(400, "BAD_REQUEST", message, error_id)
        return None

    async def _serve(self, request: web.BaseRequest, client: StreamClient) -> web.StreamResponse:
        # No compression: it would cost memory for each connection. Frames up to the limit inclusive, hence + 1.
        socket = web.WebSocketResponse(
            heartbeat=self._patience.heartbeat.total_seconds(), max_msg_size=MAX_FRAME_BYTES + 1, compress=False
        )
        socket.headers["Server"] = SERVER_NAME
        try:
            await socket.prepare(request)
        except ConnectionError:
            return socket
        reader = asyncio.create_task(_guarded(self._read(socket, client), client))
        writer = asyncio.create_task(_guarded(_write(socket, client), client))
        closing = asyncio.create_task(client.wait_closing())
        try:
            await asyncio.wait((reader, writer, closing), return_when=asyncio.FIRST_COMPLETED)
            await _end(reader, closing)
            await self._close(socket, client)
        finally:
            # aiohttp's close only flushes, which never ends if the client does not read.
            if request.transport is not None and request.transport.get_write_buffer_size():
                request.transport.abort()
            await _end(reader, closing, writer)
        return socket

    async def _close(self, socket: web.WebSocketResponse, client: StreamClient) -> None:
        """Say goodbye, while the writer still waits for the client to read: both wait on one future of aiohttp's."""
        code, reason = (client.closing.code, client.closing.reason) if client.closing else (1000, "")
        try:
            async with asyncio.timeout(self._patience.goodbye.total_seconds()):
                await socket.close(code=code, message=reason.encode())
        except (TimeoutError, asyncio.CancelledError):
            # That future can be cancelled by a ping as well; this task is not meant then.
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            _log.warning("a stream client does not read; its connection is cut")

    async def _read(self, socket: web.WebSocketResponse, client: StreamClient) -> None:
        async for message in socket:
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                return
            try:
                await self._handle(client, message.data)
            except FrameError as error:
                client.send(render_error(error))
            await self._wait_for_room(client)

    async def _wait_for_room(self, client: StreamClient) -> None:
        try:
            async with asyncio.timeout(self._patience.heartbeat.total_seconds()):
                await client.outbox.wait_for_room()
        except TimeoutError:
            client.close(TRY_AGAIN_LATER, TOO_SLOW)

    async def _handle(self, client: StreamClient, raw: str | bytes) -> None:
        frame = parse_frame(raw)
        if isinstance(frame, Leave):
            self._hub.leave(client, frame.subscription.subscription_id)
            return
        subscription = frame.subscription
        # Registered before the store is read: what changes from here on is held and follows the sync frame.
        self._hub.join(client, subscription)
        try:
            sync = await self._sync(subscription)
        except IiiError as error:
            self._hub.leave(client, subscription.subscription_id)
            raise FrameError(error.message, subscription.subscription_id, code=error.code) from error
        self._hub.synced(client, subscription.subscription_id, sync)

    async def _sync(self, subscription: Subscription) -> str:
        stream_name, group_id, item_id = subscription.stream_name, subscription.group_id, subscription.item_id
        data = (
            await self._store.get(stream_name, group_id, item_id)
            if item_id is not None
            else await self._store.list_items(stream_name, group_id)
        )
        return render_sync(data, subscription=subscription, timestamp_ms=self._clock.now_ms())


async def _write(socket: web.WebSocketResponse, client: StreamClient) -> None:
    while True:
        await socket.send_str(await client.outbox.take())


async def _guarded(work: Coroutine[Any, Any, None], client: StreamClient) -> None:
    try:
        await work
    except ConnectionError as error:
        _log.debug("a stream client has gone: %s", error)
    except Exception:  # noqa: BLE001 - whatever it was, it ends this connection only
        _log.exception("a stream connection failed")
        client.close(INTERNAL_ERROR, "the host failed; its log says why")


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
