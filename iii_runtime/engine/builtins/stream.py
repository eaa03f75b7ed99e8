"""`stream::*` with iii's payloads, results and codes."""

from __future__ import annotations

from collections.abc import Mapping

from iii_runtime.core.errors import InvocationError
from iii_runtime.core.invocation import Invocation
from iii_runtime.core.payload import Json
from iii_runtime.engine.builtins.payload import Fields, failing_as
from iii_runtime.engine.builtins.state import Builtin, updated
from iii_runtime.ports.state_store import Notice
from iii_runtime.ports.stream_store import StreamStore


def stream_builtins(stream: StreamStore) -> Mapping[str, Builtin]:
    """Return the stream functions by id."""

    async def set_item(payload: Json, _caller: Invocation | None) -> Json:
        fields = Fields("stream::set", "STREAM_SET_ERROR", payload)
        address, data = _address(fields), fields.value("data")
        async with failing_as("STREAM_SET_ERROR", "stream::set"):
            written = await stream.set(*address, data)
        return {"old_value": written.old_value, "new_value": written.new_value}

    async def get_item(payload: Json, _caller: Invocation | None) -> Json:
        address = _address(Fields("stream::get", "STREAM_GET_ERROR", payload))
        async with failing_as("STREAM_GET_ERROR", "stream::get"):
            return await stream.get(*address)

    async def delete_item(payload: Json, _caller: Invocation | None) -> Json:
        address = _address(Fields("stream::delete", "STREAM_DELETE_ERROR", payload))
        async with failing_as("STREAM_DELETE_ERROR", "stream::delete"):
            return {"old_value": (await stream.delete(*address)).old_value}

    async def update_item(payload: Json, _caller: Invocation | None) -> Json:
        fields = Fields("stream::update", "STREAM_UPDATE_ERROR", payload)
        address, ops = _address(fields), fields.array("ops")
        async with failing_as("STREAM_UPDATE_ERROR", "stream::update"):
            return updated(await stream.update(*address, ops))

    async def list_items(payload: Json, _caller: Invocation | None) -> Json:
        fields = Fields("stream::list", "STREAM_LIST_ERROR", payload)
        name, group = fields.name("stream_name"), fields.name("group_id")
        async with failing_as("STREAM_LIST_ERROR", "stream::list"):
            return await stream.list_items(name, group)

    async def list_groups(payload: Json, _caller: Invocation | None) -> Json:
        name = Fields("stream::list_groups", "STREAM_LIST_GROUPS_ERROR", payload).name("stream_name")
        async with failing_as("STREAM_LIST_GROUPS_ERROR", "stream::list_groups"):
            return list(await stream.list_groups(name))

    async def list_all(_payload: Json, _caller: Invocation | None) -> Json:
        async with failing_as("STREAM_LIST_ALL_ERROR", "stream::list_all"):
            streams = await stream.list_streams()
        listed: list[Json] = [{"id": name, "groups": list(groups)} for name, groups in streams]
        return {"stream": listed, "count": len(streams)}

    async def send(payload: Json, _caller: Invocation | None) -> Json:
        notice = _notice(Fields("stream::send", "STREAM_SEND_ERROR", payload))
        async with failing_as("STREAM_SEND_ERROR", "stream::send"):
            await stream.send(notice)
        return None

    return {
        "stream::set": set_item,
        "stream::get": get_item,
        "stream::delete": delete_item,
        "stream::update": update_item,
        "stream::list": list_items,
        "stream::list_groups": list_groups,
        "stream::list_all": list_all,
        "stream::send": send,
    }


def _address(fields: Fields) -> tuple[str, str, str]:
    return fields.name("stream_name"), fields.name("group_id"), fields.name("item_id")


def _notice(fields: Fields) -> Notice:
    # The vendor's own example says event_type, which iii's engine then refuses; both spellings work here.
    event_type = fields.optional_name("type") or fields.optional_name("event_type")
    if event_type is None:
        raise InvocationError("STREAM_SEND_ERROR", "stream::send needs 'type'.", "stream::send")
    return Notice(
        stream_name=fields.name("stream_name"),
        group_id=fields.name("group_id"),
        item_id=fields.optional_name("id"),
        type=event_type,
        data=fields.optional("data"),
    )
