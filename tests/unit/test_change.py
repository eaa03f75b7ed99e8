"""Changes: what triggers and clients are told, and the form they are stored in."""

from __future__ import annotations

import pytest

from iii_runtime.core.change import Change, StateChange, StreamChange, StreamKind, change_from_json, change_to_json
from iii_runtime.core.payload import Json, PayloadError, copy_json

STATE = StateChange(
    at_ms=17, event_type="state:updated", scope="orders", key="o1", old_value=None, new_value={"paid": True}
)
STREAM = StreamChange(at_ms=17, kind="create", stream_name="orders", group_id="g", item_id="i", data={"n": 1})
SENT = StreamChange(
    at_ms=17, kind="event", stream_name="orders", group_id="g", item_id=None, data=5, event_type="step_update"
)


def test_a_state_trigger_is_told_what_was_and_what_is() -> None:
    assert STATE.to_payload() == {
        "type": "state",
        "event_type": "state:updated",
        "scope": "orders",
        "key": "o1",
        "old_value": None,
        "new_value": {"paid": True},
    }


@pytest.mark.parametrize("kind", ["create", "update", "delete"])
def test_a_stream_trigger_is_told_of_an_item(kind: StreamKind) -> None:
    change = StreamChange(at_ms=17, kind=kind, stream_name="orders", group_id="g", item_id="i", data={"n": 1})
    assert change.to_payload() == {
        "type": "stream",
        "timestamp": 17,
        "streamName": "orders",
        "groupId": "g",
        "id": "i",
        "event": {"type": kind, "data": {"n": 1}},
    }


def test_what_was_sent_has_the_type_of_its_sender() -> None:
    assert SENT.to_payload()["event"] == {"type": "event", "event": {"type": "step_update", "data": 5}}
    assert SENT.to_payload()["id"] is None


@pytest.mark.parametrize("change", [STATE, STREAM, SENT])
def test_a_change_comes_back_as_it_was_stored(change: Change) -> None:
    stored = copy_json(change_to_json(change))
    assert isinstance(stored, dict)
    assert change_from_json(stored) == change


@pytest.mark.parametrize(
    ("change", "member", "damage"),
    [
        (STATE, "state", "state:renamed"),
        (STATE, "state", None),
        (STATE, "at", "17"),
        (STATE, "at", True),
        (STATE, "scope", None),
        (STATE, "key", ["o1"]),
        (STREAM, "stream", "rename"),
        (STREAM, "stream", {}),
        (STREAM, "at", 1.5),
        (STREAM, "name", None),
        (STREAM, "group", 5),
        (STREAM, "item", 5),
        (SENT, "type", ["step_update"]),
    ],
)
def test_a_damaged_change_is_one_typed_error(change: Change, member: str, damage: Json) -> None:
    with pytest.raises(PayloadError, match="the stored change cannot be read") as refusal:
        change_from_json({**change_to_json(change), member: damage})
    assert refusal.value.code == "change_unreadable"


@pytest.mark.parametrize("change", [STATE, STREAM])
def test_a_change_without_one_of_its_members_is_unreadable(change: Change) -> None:
    stored = change_to_json(change)
    for name in stored.keys() - {"item", "type"}:
        with pytest.raises(PayloadError, match="the stored change cannot be read"):
            change_from_json({other: value for other, value in stored.items() if other != name})
