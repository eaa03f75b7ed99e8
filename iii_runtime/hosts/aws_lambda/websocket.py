"""The WebSocket API: connecting, the frames of clients, disconnecting, and the http route that gives out tickets."""

from __future__ import annotations

import base64
import binascii
import logging
import secrets
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

from iii_runtime.adapters.aws.tickets import DynamoTickets
from iii_runtime.core.config import StreamAuth
from iii_runtime.core.errors import StoreError
from iii_runtime.core.http import HttpReply, error_reply, unavailable
from iii_runtime.core.payload import Json, encode_json
from iii_runtime.engine.stream_session import StreamSession
from iii_runtime.hosts.aws_lambda.bootstrap import entry_point
from iii_runtime.hosts.aws_lambda.context import LambdaContext
from iii_runtime.hosts.aws_lambda.http_event import http_response
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.aws_lambda.viewers import open_viewers
from iii_runtime.hosts.unknown_event import EventUnknownError
from iii_runtime.ports.clock import IdSource
from iii_runtime.ports.stream_connections import StreamConnections, TicketStore

_log = logging.getLogger("iii_runtime.stream")

TICKET_LIFE = timedelta(seconds=60)
_TICKET_BYTES = 32
_RETRY_AFTER_S = 1


def new_ticket() -> str:
    """Return 256 random bits, in letters that an address may have."""
    return secrets.token_urlsafe(_TICKET_BYTES)


class WebSocketEntry:
    """Handles the events of the WebSocket API, and those of the ticket route of the HTTP API.

    Who may connect: with `iam` those whose signature API Gateway has checked; with `ticket` those who present one, as
    the query parameter `ticket`, that was not used before and is not older than a minute; with `none` everybody.

    Frames are answered through the management API, for an answer to an event goes nowhere. Nothing can be posted to a
    connection whose $connect is still being handled.

    Args:
        session: Carries out the frames.
        connections: Where connections are registered.
        tickets: Where tickets are kept.
        auth: Who may connect.
        ids: Where error ids come from.
        make_ticket: Returns a fresh secret.
    """

    def __init__(
        self,
        session: StreamSession,
        connections: StreamConnections,
        tickets: TicketStore,
        *,
        auth: StreamAuth,
        ids: IdSource,
        make_ticket: Callable[[], str] = new_ticket,
    ) -> None:
        self._session = session
        self._connections = connections
        self._tickets = tickets
        self._auth = auth
        self._ids = ids
        self._make_ticket = make_ticket

    async def handle(self, event: object) -> dict[str, Json]:
        """Handle an event and return the answer for API Gateway.

        Raises:
            EventUnknownError: It is of none of these kinds.
        """
        context = event.get("requestContext") if isinstance(event, Mapping) else None
        if not isinstance(event, Mapping) or not isinstance(context, Mapping):
            raise EventUnknownError("the event has no requestContext; it is none of a WebSocket API.")
        if "http" in context:
            return self._answer(await self._give_ticket())
        connection_id = context.get("connectionId")
        if not isinstance(connection_id, str) or not connection_id:
            raise EventUnknownError("the event's requestContext has no connectionId; it is none of a WebSocket API.")
        match context.get("eventType"):
            case "CONNECT":
                return self._answer(await self._connect(connection_id, event))
            case "DISCONNECT":
                await self._session.end(connection_id)
            case "MESSAGE":
                await self._receive(connection_id, event)
            case _:
                raise EventUnknownError("the event's requestContext has an eventType that no WebSocket API has.")
        return {"statusCode": 200}

    async def _connect(self, connection_id: str, event: Mapping[str, Any]) -> HttpReply:
        try:
            refusal = await self._refusal(event) if self._auth == "ticket" else None
            if refusal is not None:
                return refusal
            await self._connections.register(connection_id)
        except StoreError as error:
            return self._failed("a connection was not accepted", error)
        return HttpReply(status=200)

    async def _refusal(self, event: Mapping[str, Any]) -> HttpReply | None:
        parameters = event.get("queryStringParameters")
        ticket = parameters.get("ticket") if isinstance(parameters, Mapping) else None
        if not isinstance(ticket, str) or not ticket:
            message = "connect with a ticket, as the query parameter `ticket`"
            return error_reply(401, "TICKET_MISSING", message, self._ids.new_id())
        if not await self._tickets.redeem(ticket):
            message = "the ticket was used before, is too old, or never was one; get another"
            return error_reply(403, "TICKET_INVALID", message, self._ids.new_id())
        return None

    async def _receive(self, connection_id: str, event: Mapping[str, Any]) -> None:
        try:
            await self._session.receive(connection_id, _frame(event))
        except Exception:
            # The client must not go on without knowing whether its frame was carried out.
            await self._session.close(connection_id)
            raise

    async def _give_ticket(self) -> HttpReply:
        if self._auth != "ticket":
            message = "connections to the streams of this stage need no ticket"
            return error_reply(404, "NOT_FOUND", message, self._ids.new_id())
        ticket = self._make_ticket()
        try:
            await self._tickets.issue(ticket, TICKET_LIFE)
        except StoreError as error:
            return self._failed("a ticket was not given out", error)
        body: dict[str, Json] = {"ticket": ticket, "expires_in_s": round(TICKET_LIFE.total_seconds())}
        headers = (("Content-Type", "application/json"), ("Cache-Control", "no-store"))
        return HttpReply(status=201, headers=headers, body=encode_json(body).encode("ascii"))

    def _answer(self, reply: HttpReply) -> dict[str, Json]:
        return http_response(reply, "POST", self._ids.new_id())

    def _failed(self, what: str, error: StoreError) -> HttpReply:
        error_id = self._ids.new_id()
        _log.error(what, extra={"iii": {"error": error.message, "code": error.code, "error_id": error_id}})
        return unavailable("the store cannot be used at the moment", _RETRY_AFTER_S, error_id)


def _frame(event: Mapping[str, Any]) -> str | bytes:
    body = event.get("body")
    text = body if isinstance(body, str) else ""
    if not event.get("isBase64Encoded"):
        return text
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text  # no frame either way, which the answer then says


@lru_cache(maxsize=1)
def open_websocket(sandbox: Sandbox) -> WebSocketEntry:
    """Return the entry of a sandbox.

    Raises:
        HostError: `environment_invalid`.
    """
    stores = sandbox.runtime.stores
    table, connections, poster = open_viewers(sandbox)
    return WebSocketEntry(
        StreamSession(connections, poster, stores.stream, stores.clock),
        connections,
        DynamoTickets(table, stores.clock),
        auth=sandbox.runtime.app.config.stream.auth or "none",
        ids=stores.ids,
    )


def _handle(sandbox: Sandbox, event: object, context: LambdaContext) -> Json:
    entry = open_websocket(sandbox)
    return sandbox.run(lambda: entry.handle(event), context)


handler = entry_point(_handle, "websocket")
