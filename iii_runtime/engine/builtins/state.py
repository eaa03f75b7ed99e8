"""`state::*` with iii's payloads, results and codes, and the write behind `StepTracker`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime

from iii_runtime.core.errors import InvocationError
from iii_runtime.core.invocation import Invocation
from iii_runtime.core.payload import Json
from iii_runtime.core.step_tracker import TRACK_STEP
from iii_runtime.engine.builtins.payload import Fields, failing_as
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.state_store import Notice, Written

Builtin = Callable[[Json, Invocation | None], Awaitable[Json]]


def state_builtins(stores: Stores) -> Mapping[str, Builtin]:
    """Return the state functions by id."""
    state = stores.state

    async def set_value(payload: Json, _caller: Invocation | None) -> Json:
        fields = Fields("state::set", "SET_ERROR", payload)
        scope, key, value = fields.name("scope"), fields.name("key"), fields.value("value", "data")
        async with failing_as("SET_ERROR", "state::set"):
            written = await state.set(scope, key, value)
        return {"old_value": written.old_value, "new_value": written.new_value}

    async def get_value(payload: Json, _caller: Invocation | None) -> Json:
        fields = Fields("state::get", "GET_ERROR", payload)
        scope, key = fields.name("scope"), fields.name("key")
        async with failing_as("GET_ERROR", "state::get"):
            return await state.get(scope, key)

    async def delete_value(payload: Json, _caller: Invocation | None) -> Json:
        fields = Fields("state::delete", "DELETE_ERROR", payload)
        scope, key = fields.name("scope"), fields.name("key")
        async with failing_as("DELETE_ERROR", "state::delete"):
            return (await state.delete(scope, key)).old_value

    async def update_value(payload: Json, _caller: Invocation | None) -> Json:
        fields = Fields("state::update", "UPDATE_ERROR", payload)
        scope, key, ops = fields.name("scope"), fields.name("key"), fields.array("ops")
        async with failing_as("UPDATE_ERROR", "state::update"):
            return updated(await state.update(scope, key, ops))

    async def list_values(payload: Json, _caller: Invocation | None) -> Json:
        scope = Fields("state::list", "LIST_ERROR", payload).name("scope")
        async with failing_as("LIST_ERROR", "state::list"):
            return await state.list_values(scope)

    async def list_groups(_payload: Json, _caller: Invocation | None) -> Json:
        async with failing_as("LIST_GROUPS_ERROR", "state::list_groups"):
            return {"groups": list(await state.list_scopes())}

    async def track_step(payload: Json, caller: Invocation | None) -> Json:
        return await _track_step(stores, payload, caller)

    return {
        "state::set": set_value,
        "state::get": get_value,
        "state::delete": delete_value,
        "state::update": update_value,
        "state::list": list_values,
        "state::list_groups": list_groups,
        TRACK_STEP: track_step,
    }


def updated(written: Written) -> dict[str, Json]:
    """Return the result of an update in iii's shape: `errors` only if there are any."""
    result: dict[str, Json] = {"old_value": written.old_value, "new_value": written.new_value}
    if written.errors:
        result["errors"] = [error.to_json() for error in written.errors]
    return result


async def _track_step(stores: Stores, payload: Json, caller: Invocation | None) -> Json:
    fields = Fields(TRACK_STEP, "UPDATE_ERROR", payload)
    step, status = fields.name("step"), fields.name("status")
    detail = fields.value("detail")
    at_ms = stores.clock.now_ms()
    record: dict[str, Json] = dict(detail) if isinstance(detail, dict) else {}
    record |= {"status": status, "at": datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")}
    if caller is not None and caller.message_receipt_id is not None:
        record |= {"attempt": caller.attempt, "message_receipt_id": caller.message_receipt_id}
    ops: list[Json] = [
        {"type": "set", "path": "current_step", "value": step},
        {"type": "set", "path": "status", "value": fields.name("overall")},
        {"type": "set", "path": ["steps", step], "value": record},
    ]
    notice = Notice(
        stream_name=fields.name("stream_name"),
        group_id=fields.name("key"),
        item_id=f"{step}-{at_ms}",
        type="step_update",
        data={**record, "step": step},
    )
    async with failing_as("UPDATE_ERROR", TRACK_STEP):
        written = await stores.state.update(fields.name("scope"), fields.name("key"), ops, notice)
    if written.errors:
        skipped = "; ".join(error.message for error in written.errors)
        raise InvocationError("UPDATE_ERROR", f"the step was recorded in part: {skipped}", TRACK_STEP)
    return None
