"""A WebSocket client that prints the events of one subscription."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, TypeAlias

import aiohttp
from yarl import URL

from iii_runtime.cli.connection import running_host
from iii_runtime.cli.output import json_text, say, visible
from iii_runtime.cli.place import Place
from iii_runtime.cli.stage import Stage
from iii_runtime.core.errors import HostError, InvocationError
from iii_runtime.core.payload import Json
from iii_runtime.core.stream_protocol import Subscription
from iii_runtime.engine.stream_push import FRAME_TOO_LARGE

_Find: TypeAlias = Callable[[], str | None]
"""Returns the address of the WebSocket server; None if there is none at the moment."""

_RECONNECT_SECONDS = 0.5
_HEARTBEAT_SECONDS = 20.0
_EMPTY = "notice: nothing is stored there; sent events are not kept, so only what comes from now on is shown"


def _data_text(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False)


async def watch_stream(
    place: Place, subscription: Subscription, until: int | None, *, tell: Callable[[Any], str] = _data_text
) -> None:
    """Print the events of a subscription, one a line, and reconnect whenever the connection is lost.

    Args:
        place: Where the host runs. It may come back elsewhere: `host.json` is read anew for each connection, as is the
            address of a stage, which takes one connection.
        subscription: What to see.
        until: How many events to print; None for no end.
        tell: Returns the data of an event as people read it.

    Raises:
        HostError: `host_unreachable`: no host runs at the start. `stream_refused`: it takes no connection. For a stage
            see `StageStreams.address`.
        InvocationError: The host refused the subscription.
    """
    find = _host_address(place) if place.stage is None else _stage_address(place, place.stage)
    address = find()
    if address is None:
        raise HostError(
            f"no host is running on {place.data}, and events come from a running one. Start it with `iii-runtime dev`, "
            "or name its directory with --data.",
            code="host_unreachable",
        )
    printed = 0
    nothing: list[Json] | None = [] if subscription.item_id is None else None
    while True:
        async with aclosing(_frames(address, subscription)) as frames:
            async for frame in frames:
                if printed == 0 and frame["event"].get("data") == nothing:
                    say(_EMPTY)
                print(json_text(frame, compact=True) if place.as_json else _line(frame, tell), flush=True)
                printed += 1
                if printed == until:
                    return
        say("notice: the connection is lost; connecting again")
        address = await _next(find)


def _host_address(place: Place) -> _Find:
    def find() -> str | None:
        host = running_host(place.data)
        return None if host is None else f"ws://{host.stream}/"

    return find


def _stage_address(place: Place, stage: Stage) -> _Find:
    # Here because it needs the AWS library.
    from iii_runtime.cli.stage_engine import stage_streams  # noqa: PLC0415

    return stage_streams(place, stage).address


async def _next(find: _Find) -> str:
    while True:
        await asyncio.sleep(_RECONNECT_SECONDS)
        address = find()
        if address is not None:
            return address


async def _frames(address: str, subscription: Subscription) -> AsyncGenerator[dict[str, Any]]:
    """Join and yield each event frame, until the connection ends however it does."""
    async with aiohttp.ClientSession() as session:
        try:
            # As it is, for it may be signed. No limit: a sync frame is as large as what is stored.
            target = URL(address, encoded=True)
            async with session.ws_connect(target, heartbeat=_HEARTBEAT_SECONDS, max_msg_size=0) as socket:
                await socket.send_str(_join(subscription))
                async for message in socket:
                    if message.type == aiohttp.WSMsgType.TEXT:
                        frame = json.loads(message.data)
                        if frame.get("code") == FRAME_TOO_LARGE:
                            # Of a stage: what is stored or has happened does not fit; the subscription goes on.
                            say(f"notice: {frame['message']}")
                        else:
                            yield _event_frame(frame)
        except aiohttp.WSServerHandshakeError as error:
            raise HostError(
                f"the connection to {address.partition('?')[0]} is refused with status {error.status}.",
                code="stream_refused",
            ) from error
        except (aiohttp.ClientError, OSError, TimeoutError):
            return


def _join(subscription: Subscription) -> str:
    data = {
        "subscriptionId": subscription.subscription_id,
        "streamName": subscription.stream_name,
        "groupId": subscription.group_id,
    }
    if subscription.item_id is not None:
        data["id"] = subscription.item_id
    return json.dumps({"type": "join", "data": data})


def _event_frame(frame: dict[str, Any]) -> dict[str, Any]:
    if "type" not in frame:
        # So speaks API Gateway itself, when the Lambda behind it has failed.
        raise HostError(f"the server cannot carry it out: {frame.get('message')}.", code="stream_refused")
    if frame["type"] == "error":
        raise InvocationError(frame["code"], frame["message"])
    if frame["event"]["type"] == "unauthorized":
        raise InvocationError("unauthorized", f"the host refuses to show group '{frame['groupId']}'.")
    return frame


def _line(frame: dict[str, Any], tell: Callable[[Any], str]) -> str:
    event = frame["event"]
    kind, name, data = event["type"], frame["id"], event.get("data")
    if kind == "event":
        kind, data = event["event"]["type"], event["event"].get("data")
    if kind == "step_update" and isinstance(data, dict) and isinstance(data.get("step"), str):
        # Its id is made of step and time, which are members as well.
        name, data = data["step"], {key: value for key, value in data.items() if key not in {"step", "at"}}
    moment = datetime.fromtimestamp(frame["timestamp"] / 1000, UTC).astimezone()
    return visible(f"{moment:%H:%M:%S} {kind:<11} {name or '-':<14} {tell(data)}").replace("\n", "\\n")
