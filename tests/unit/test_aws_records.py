"""What the records of the table's stream tell, as a Lambda receives them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from iii_runtime.adapters.aws.attributes import Item, to_attributes
from iii_runtime.adapters.aws.document_codec import encode_document
from iii_runtime.adapters.aws.document_keys import EVENT, DocumentKey, group_partition, state_key, stream_key
from iii_runtime.adapters.aws.records import changes_of
from iii_runtime.adapters.aws.run_item import item_of
from iii_runtime.core.change import StateChange, StreamChange
from iii_runtime.core.errors import StoreError
from iii_runtime.core.message import BlobLink
from iii_runtime.core.payload import Json, PayloadError
from iii_runtime.core.runs.fact_codec import encode_fact
from iii_runtime.core.runs.facts import Key, StepCompleted
from iii_runtime.core.runs.record import RunRecord

CREATED = 1_767_225_600
STATE = state_key("s", "k")
LINK = BlobLink(key="state/1", size=3, sha256="0")
EVENT_DATA: Item = {"id": "e1", "s": "progress", "g": "g", "i": None, "t": "step", "d": '{"n":1}'}


def document(key: DocumentKey, value: Json, *, at_ms: int = 5, event: Item | None = None) -> Item:
    item: Item = {"pk": key.pk, "sk": key.sk, **key.names, "v": encode_document(value), "n": f"w{at_ms}", "at": at_ms}
    return item if event is None else item | {"ev": event}


def record(old: Item | None, new: Item | None, *, created: object = CREATED) -> dict[str, Any]:
    """Return the record of a change of one item."""
    item = new or old or {}
    told: dict[str, Any] = {
        "ApproximateCreationDateTime": created,
        "Keys": to_attributes({"pk": item["pk"], "sk": item["sk"]}),
        "SequenceNumber": "1",
        "SizeBytes": 1,
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    told |= {} if old is None else {"OldImage": to_attributes(old)}
    told |= {} if new is None else {"NewImage": to_attributes(new)}
    name = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
    return {"eventID": "1", "eventName": name, "eventSource": "aws:dynamodb", "dynamodb": told}


async def follow(link: BlobLink) -> bytes:
    assert link == LINK
    return b"123"


def state_change(kind: str, old: Json, new: Json, *, at_ms: int = 5) -> StateChange:
    return StateChange(at_ms=at_ms, event_type=kind, scope="s", key="k", old_value=old, new_value=new)  # type: ignore[arg-type]


async def test_a_state_value_is_created_updated_and_deleted() -> None:
    old, new = document(STATE, {"a": 1}, at_ms=4), document(STATE, {"a": [2]})
    assert await changes_of(record(None, new), follow) == [state_change("state:created", None, {"a": [2]})]
    assert await changes_of(record(old, new), follow) == [state_change("state:updated", {"a": 1}, {"a": [2]})]
    deleted = state_change("state:deleted", {"a": [2]}, None, at_ms=CREATED * 1000)
    assert await changes_of(record(new, None), follow) == [deleted]
    created = datetime.fromtimestamp(CREATED, UTC)
    assert await changes_of(record(new, None, created=created), follow) == [deleted]


async def test_a_write_of_the_same_value_is_an_update() -> None:
    old, new = document(STATE, 1, at_ms=4), document(STATE, 1)
    assert await changes_of(record(old, new), follow) == [state_change("state:updated", 1, 1)]


async def test_a_value_that_the_table_has_expired_is_deleted() -> None:
    expiry = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    expired = record(document(STATE, 1), None) | {"userIdentity": expiry}
    assert await changes_of(expired, follow) == [state_change("state:deleted", 1, None, at_ms=CREATED * 1000)]


@pytest.mark.parametrize(
    ("stream", "group", "item"),
    [
        ("s", "g", "i"),
        ("a#b", "c%23#d", "#"),
        ("漢" * 256, "é/ 字" * 60, "\U0001f600" * 256),
        ("x" * 2000, "g", "y" * 2000),
    ],
    ids=["short", "marks", "wide", "hashed"],
)
async def test_a_stream_item_has_its_own_names_again(stream: str, group: str, item: str) -> None:
    image = document(stream_key(stream, group, item), {"a": 1})
    for old, new, kind, at_ms in ((None, image, "create", 5), (image, None, "delete", CREATED * 1000)):
        (change,) = await changes_of(record(old, new), follow)
        assert change == StreamChange(
            at_ms=at_ms,
            kind=kind,  # type: ignore[arg-type]
            stream_name=stream,
            group_id=group,
            item_id=item,
            data={"a": 1},
        )


async def test_a_notice_follows_the_change_it_rode_on() -> None:
    old = document(STATE, 1, at_ms=4, event=EVENT_DATA | {"id": "e0"})
    state, event = await changes_of(record(old, document(STATE, 2, event=EVENT_DATA)), follow)
    assert state == state_change("state:updated", 1, 2)
    assert event == StreamChange(
        at_ms=5, kind="event", stream_name="progress", group_id="g", item_id=None, data={"n": 1}, event_type="step"
    )


async def test_a_notice_of_an_earlier_write_is_not_told_again() -> None:
    item = document(STATE, 1, event=EVENT_DATA)
    assert len(await changes_of(record(item, item), follow)) == 1
    assert len(await changes_of(record(item, None), follow)) == 1


async def test_a_sent_event_is_told_once_and_its_expiry_not_at_all() -> None:
    item: Item = {"pk": group_partition(EVENT, "progress", "g"), "sk": "1", "at": 5, "ttl": 9, "ev": EVENT_DATA}
    (event,) = await changes_of(record(None, item), follow)
    assert (event.at_ms, event.to_payload()["streamName"]) == (5, "progress")
    assert await changes_of(record(item, None), follow) == []


async def test_large_values_and_data_are_read_where_they_are() -> None:
    link: Item = {"k": LINK.key, "n": LINK.size, "h": LINK.sha256}
    linked = {name: value for name, value in document(STATE, 1).items() if name != "v"} | {"vl": link}
    event = {name: value for name, value in EVENT_DATA.items() if name != "d"} | {"dl": link}
    state, notice = await changes_of(record(document(STATE, 1), linked | {"ev": event}), follow)
    assert state == state_change("state:updated", 1, 123)
    assert isinstance(notice, StreamChange)
    assert notice.data == 123
    assert await changes_of(record(linked, document(STATE, 1)), follow) == [state_change("state:updated", 123, 1)]


async def test_the_record_of_a_run_tells_what_has_become_of_it_and_its_other_items_nothing() -> None:
    fact = encode_fact(StepCompleted(key=Key("step", "pay"), at_ms=4, value=1))
    new = RunRecord(workflow_id="w", run_id="r", first_run_id="r", workflow="a::b", tail=(fact,), sequence=1)
    (change,) = await changes_of(record(item_of(new), item_of(replace(new, tail=(fact, fact), sequence=2))), follow)
    assert isinstance(change, StreamChange)
    assert (change.stream_name, change.group_id, change.item_id, change.kind) == ("runs", "w", "r", "update")
    assert isinstance(change.data, dict)
    assert change.data["facts"] == 2
    renewed = replace(new, lease_until_ms=5, owner="x")
    assert await changes_of(record(item_of(renewed), item_of(replace(renewed, lease_until_ms=9))), follow) == []
    (other,) = await changes_of(record(item_of(new), item_of(replace(new, run_id="s", tail=()))), follow)
    assert isinstance(other, StreamChange)
    assert (other.item_id, other.kind) == ("s", "create")
    assert await changes_of(record(item_of(new), None), follow) == []
    assert await changes_of(record(None, {"pk": "W#w", "sk": "P#large", "t": "x"}), follow) == []


@pytest.mark.parametrize("pk", ["M#1", "DD#1", "C#job", "I#1", "J#s#g", "K#1", "W"])
async def test_items_of_other_kinds_are_no_changes(pk: str) -> None:
    item: Item = {"pk": pk, "sk": "@"}
    body = record(None, item)
    body["dynamodb"]["NewImage"]["b"] = {"B": "a text, as a Lambda receives bytes"}
    assert await changes_of(body, follow) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda told: told.pop("Keys"),
        lambda told: told.pop("NewImage"),
        lambda told: told["NewImage"].pop("v"),
        lambda told: told["NewImage"].pop("at"),
        lambda told: told["NewImage"].update(v={"N": "1"}),
        lambda told: told["NewImage"].update(v={"S": "no json"}),
        lambda told: told["NewImage"].update(vl={"S": "no link"}),
        lambda told: told["NewImage"].update(ev={"M": {"id": {"S": "e"}}}),
        lambda told: told["NewImage"].update(ev={"S": "no event"}),
        lambda told: told["NewImage"].update(x={"SS": ["a set"]}),
        lambda told: told["NewImage"].update(x={"N": "1.5"}),
        lambda told: told["NewImage"].update(v={"S": "[" * 5000}),
        lambda told: told.update(NewImage=["a list"]),
        lambda told: told.update(Keys={"pk": {"S": "S#s"}, "sk": "no attribute"}),
        lambda told: (told.pop("NewImage"), told.update(OldImage=told["Keys"], ApproximateCreationDateTime=1e400)),
    ],
)
async def test_a_record_that_cannot_be_read_is_told_without_its_content(damage: Any) -> None:
    broken = record(None, document(STATE, 1, event=EVENT_DATA))
    damage(broken["dynamodb"])
    with pytest.raises(StoreError, match=r"the record of S#s / k in .* cannot be read|item without keys|/ ") as caught:
        await changes_of(broken, follow)
    assert caught.value.code == "store_corrupt"
    assert "no json" not in caught.value.message


@pytest.mark.parametrize("text", ["NaN", "1e999", "[" * 70 + "]" * 70, "123456789012345678901"])
async def test_a_value_that_nobody_could_pass_on_is_told_as_well(text: str) -> None:
    with pytest.raises(PayloadError):
        await changes_of(record(None, document(STATE, 1) | {"v": text}), follow)


async def test_an_error_of_the_reader_stays_what_it_is() -> None:
    async def fail(link: BlobLink) -> bytes:
        raise StoreError(f"{link.key} is gone", code="blob_missing")

    item = document(STATE, 1) | {"vl": {"k": LINK.key, "n": LINK.size, "h": LINK.sha256}}
    with pytest.raises(StoreError) as caught:
        await changes_of(record(None, item), fail)
    assert caught.value.code == "blob_missing"


async def test_a_write_that_came_twice_with_an_object_each_is_told_once() -> None:
    """The reply to the first was lost; a write that links to an object takes another one when it is repeated."""
    link: Item = {"k": LINK.key, "n": LINK.size, "h": LINK.sha256}
    first = {name: value for name, value in document(STATE, 1).items() if name != "v"} | {"vl": link}
    assert await changes_of(record(first | {"vl": link | {"k": "state/other"}}, first), follow) == []
    assert len(await changes_of(record(first | {"n": "another write"}, first), follow)) == 1
