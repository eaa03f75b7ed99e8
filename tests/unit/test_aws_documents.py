"""State values and stream items in the table: what each operation asks of it, and where a value is kept."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from botocore.stub import Stubber

from iii_runtime.adapters.aws.document_codec import MAP_DEPTH
from iii_runtime.adapters.aws.kept_value import INLINE_BYTES, LONGEST_INLINE_TEXT, RIDING_BYTES
from iii_runtime.core.change import StateChange, StreamChange
from iii_runtime.core.errors import StoreError
from iii_runtime.core.payload import Json, PayloadError, PayloadTooLargeError
from iii_runtime.ports.state_store import Notice, Written
from tests.contract.aws_services import running_services
from tests.unit.aws_documents import (
    DELETE,
    GET,
    GET_OBJECT,
    INCREMENT,
    LARGE,
    NOTICE,
    PUT,
    PUT_OBJECT,
    TAG_OBJECT,
    UPDATE,
    Stage,
    set_op,
)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with running_services() as services:
        yield Stage(services)


class TestCalls:
    """How many requests an operation costs."""

    async def test_each_operation_on_a_small_value_is_one_request(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"a": {"b": 1}})
        assert stage.calls() == [PUT]
        await stage.state.set("s", "k", {"a": {"b": 2}})
        assert stage.calls() == [PUT]
        await stage.state.get("s", "k")
        assert stage.calls() == [GET]
        await stage.state.list_values("s")
        assert stage.calls() == ["dynamodb:Query"]
        await stage.state.delete("s", "k")
        assert stage.calls() == [DELETE]

    async def test_an_update_by_set_operations_is_one_request_with_its_notice(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"steps": {"a": 1}})
        stage.calls()
        ops = [set_op("status", "x"), set_op(["steps", "b"], {"at": [1, None]}), set_op(["steps", "a"], 2)]
        written = await stage.state.update("s", "k", ops, NOTICE)
        assert stage.calls() == [UPDATE]
        expected: Json = {"steps": {"a": 2, "b": {"at": [1, None]}}, "status": "x"}
        assert written == Written(old_value={"steps": {"a": 1}}, new_value=expected, existed=True)
        assert await stage.state.get("s", "k") == expected

    async def test_a_member_can_be_set_in_an_object_that_was_set_as_a_whole(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {})
        await stage.state.update("s", "k", [set_op("a", {"b": {}})])
        stage.calls()
        await stage.state.update("s", "k", [set_op(["a", "b", "c"], 1)])
        assert stage.calls() == [UPDATE]
        assert await stage.state.get("s", "k") == {"a": {"b": {"c": 1}}}

    async def test_replacing_the_document_by_an_update_is_one_request(self, stage: Stage) -> None:
        written = await stage.state.update("s", "k", [set_op("", {"a": 1}), set_op("b", 2)], NOTICE)
        assert stage.calls() == [PUT]
        assert written == Written(old_value=None, new_value={"a": 1, "b": 2}, existed=False)
        state, event = await stage.changes()
        assert isinstance(state, StateChange)
        assert isinstance(event, StreamChange)

    @pytest.mark.parametrize(
        ("stored", "ops"),
        [
            (None, [set_op("a", 1)]),
            ({"a": 1}, [set_op(["b", "c"], 1)]),
            ({"a": 1}, [set_op(["a", "c"], 1)]),
            ("text", [set_op("a", 1)]),
        ],
    )
    async def test_where_an_object_is_missing_on_the_path_the_refusal_saves_the_read(
        self, stage: Stage, stored: Json, ops: list[Json]
    ) -> None:
        if stored is not None:
            await stage.state.set("s", "k", stored)
        stage.calls()
        written = await stage.state.update("s", "k", ops)
        assert stage.calls() == ([UPDATE] if written.errors else [UPDATE, PUT])

    async def test_the_first_step_of_a_document_that_is_missing_keeps_every_law(self, stage: Stage) -> None:
        ops = [set_op("status", "running"), set_op(["steps", "pay"], {"at": 1})]
        written = await stage.state.update("orders", "o1", ops, NOTICE)
        assert stage.calls() == [UPDATE, PUT]
        document: dict[str, Json] = {"status": "running", "steps": {"pay": {"at": 1}}}
        assert written == Written(old_value=None, new_value=document, existed=False)
        created, event = await stage.changes()
        assert isinstance(created, StateChange)
        assert (created.event_type, created.old_value, created.new_value) == ("state:created", None, document)
        assert isinstance(event, StreamChange)
        assert event.data == NOTICE.data
        assert await stage.state.list_scopes() == ["orders"]
        stage.calls()
        again = await stage.state.update("orders", "o1", [set_op("status", "complete")], NOTICE)
        assert stage.calls() == [UPDATE]
        assert again == Written(old_value=document, new_value={**document, "status": "complete"}, existed=True)
        assert len(await stage.changes()) == 4

    async def test_other_operations_read_and_write(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"n": 1})
        stage.calls()
        for ops in (INCREMENT, [set_op("a", {}), set_op(["a", "b"], 1)], [set_op("a", 1), set_op("a", 2)]):
            await stage.state.update("s", "k", ops)
            assert stage.calls() == [GET, PUT]
        assert await stage.state.get("s", "k") == {"n": 2, "a": 2}

    async def test_an_update_that_changes_nothing_writes_nothing(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"n": 1})
        stage.calls()
        assert (await stage.state.update("s", "k", [])).new_value == {"n": 1}
        assert len((await stage.state.update("s", "k", [{"type": "no"}, set_op(["n", "m"], 1)])).errors) == 2
        assert stage.calls() == [GET, GET]
        assert len(await stage.changes()) == 1

    async def test_a_stream_item_costs_what_a_state_value_costs(self, stage: Stage) -> None:
        await stage.stream.set("s", "g", "i", {"a": 1})
        await stage.stream.update("s", "g", "i", [set_op("a", 2)])
        await stage.stream.get("s", "g", "i")
        await stage.stream.delete("s", "g", "i")
        await stage.stream.send(NOTICE)
        assert stage.calls() == [PUT, UPDATE, GET, DELETE, PUT]


class TestLargeValues:
    """Values that do not fit in an item are objects of the bucket."""

    async def test_a_large_value_is_an_object_and_the_replaced_one_expires(self, stage: Stage) -> None:
        await stage.state.set("s", "k", LARGE)
        assert stage.calls() == [PUT_OBJECT, PUT]
        (first,) = stage.objects()
        assert first.startswith("state/")
        await stage.state.set("s", "k", LARGE + "2")
        assert stage.calls() == [PUT_OBJECT, PUT, GET_OBJECT, TAG_OBJECT]
        assert stage.expiring() == [first]
        assert await stage.state.get("s", "k") == LARGE + "2"
        await stage.state.delete("s", "k")
        assert stage.expiring() == stage.objects()
        assert [change.new_value for change in await stage.changes() if isinstance(change, StateChange)] == [
            LARGE,
            LARGE + "2",
            None,
        ]

    async def test_a_value_at_the_limit_stays_in_the_item(self, stage: Stage) -> None:
        value = "x" * (INLINE_BYTES - 2)
        await stage.state.update("s" * 256, "k" * 256, [set_op("", value)], NOTICE)
        assert stage.calls() == [PUT]
        assert await stage.state.get("s" * 256, "k" * 256) == value

    async def test_sets_that_outgrow_the_item_move_the_value_out(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"a": "x" * 300_000})
        stage.calls()
        written = await stage.state.update("s", "k", [set_op("b", "y" * 300_000)], NOTICE)
        assert stage.calls() == [UPDATE, GET, PUT_OBJECT, PUT]
        assert written.errors == ()
        assert await stage.state.get("s", "k") == {"a": "x" * 300_000, "b": "y" * 300_000}
        await stage.state.update("s", "k", [set_op("c", 1)])
        assert stage.calls()[:2] == [GET, GET_OBJECT]
        assert [type(change).__name__ for change in await stage.changes()] == [
            "StateChange",
            "StateChange",
            "StreamChange",
            "StateChange",
        ]

    async def test_a_notice_with_much_data_has_an_object_of_its_own_that_expires(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {})
        data = "x" * RIDING_BYTES
        notice = Notice(stream_name="p", group_id="g", item_id="i", type="step", data=data)
        await stage.state.update("s", "k", [set_op("a", 1)], notice)
        await stage.stream.send(notice)
        assert stage.calls() == [PUT, PUT_OBJECT, UPDATE, PUT]
        assert stage.expiring() == stage.objects()
        events = [change for change in await stage.changes() if isinstance(change, StreamChange)]
        assert [event.data for event in events] == [data, data]

    async def test_a_large_value_that_an_update_replaces_expires(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"n": 1, "large": LARGE})
        (first,) = stage.objects()
        await stage.state.update("s", "k", INCREMENT)
        assert stage.expiring() == [first]
        await stage.state.update("s", "k", [{"type": "remove", "path": "large"}])
        assert stage.expiring() == stage.objects()
        assert await stage.state.get("s", "k") == {"n": 2}

    async def test_a_value_that_loses_against_another_leaves_no_object_behind(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"n": 0})
        stage.after("GetItem", stage.somebody_puts("s", "k", "5"))
        written = await stage.state.update("s", "k", [*INCREMENT, set_op("large", LARGE)])
        assert (written.old_value, written.existed) == ({"n": 5}, True)
        assert (len(stage.objects()), len(stage.expiring())) == (2, 1)
        value = await stage.state.get("s", "k")
        assert isinstance(value, dict)
        assert value["n"] == 6

    async def test_an_object_that_cannot_be_tagged_costs_a_warning_and_not_the_write(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        await stage.state.set("s", "k", LARGE)
        (key,) = stage.objects()
        with Stubber(stage.services.clients.s3) as s3, caplog.at_level(logging.WARNING):
            s3.add_response("get_object", {"Body": _Body(f'"{LARGE}"')}, {"Bucket": stage.blobs.bucket, "Key": key})
            s3.add_client_error("copy_object", "AccessDenied", http_status_code=403)
            written = await stage.state.set("s", "k", 1)
        assert written == Written(old_value=LARGE, new_value=1, existed=True)
        assert "an object that is not linked any more stays in the bucket" in caplog.text
        assert LARGE not in caplog.text

    async def test_an_object_that_is_not_what_was_stored_is_told(self, stage: Stage) -> None:
        await stage.state.set("s", "k", LARGE)
        (key,) = stage.objects()
        stage.services.clients.s3.put_object(Bucket=stage.blobs.bucket, Key=key, Body=b'"other"')
        with pytest.raises(StoreError) as caught:
            await stage.state.get("s", "k")
        assert caught.value.code == "store_corrupt"
        stage.services.clients.s3.delete_object(Bucket=stage.blobs.bucket, Key=key)
        with pytest.raises(StoreError) as caught:
            await stage.state.get("s", "k")
        assert caught.value.code == "blob_missing"


class TestLimits:
    """`max_value_bytes` counts the JSON text, as on one machine."""

    async def test_a_small_limit_is_held_by_every_update(self, stage: Stage) -> None:
        state = stage.bounded_state(20)
        await state.set("s", "k", {"a": "123456"})
        with pytest.raises(PayloadTooLargeError) as caught:
            await state.update("s", "k", [set_op("b", "123456")])
        assert caught.value.code == "VALUE_TOO_LARGE"
        with pytest.raises(PayloadTooLargeError):
            await state.set("s", "k", "é" * 4)
        assert await state.get("s", "k") == {"a": "123456"}

    async def test_a_limit_that_no_item_reaches_costs_no_read(self, stage: Stage) -> None:
        state = stage.bounded_state(LONGEST_INLINE_TEXT)
        await state.set("s", "k", {})
        await state.update("s", "k", [set_op("a", 1)])
        assert stage.calls() == [PUT, UPDATE]
        value = "x" * (LONGEST_INLINE_TEXT - 2)
        assert (await state.set("s", "k", value)).new_value == value
        with pytest.raises(PayloadTooLargeError):
            await state.set("s", "k", value + "x")

    async def test_what_is_no_json_is_refused_before_anything_is_sent(self, stage: Stage) -> None:
        for ops in ([set_op("a", float("nan"))], [set_op("", float("inf"))]):
            with pytest.raises(PayloadError):
                await stage.state.update("s", "k", ops)
        assert PUT not in stage.calls()
        assert await stage.changes() == []


async def test_any_document_can_be_changed_by_its_paths(stage: Stage) -> None:
    """Also below what DynamoDB nests, and where a member's name is none for DynamoDB."""
    path = [f"level {number}" for number in range(MAP_DEPTH + 4)]
    await stage.state.update("s", "deep", [set_op(path, 1)])
    await stage.state.update("s", "deep", [set_op([*path[:-1], "other"], 2)])
    await stage.state.set("s", "odd", {"a": {"": 1, "b": {}}})
    await stage.state.update("s", "odd", [set_op(["a", "b", "#x.y[0]"], 3)])
    deep = await stage.state.get("s", "deep")
    for name in path[:-1]:
        assert isinstance(deep, dict)
        deep = deep[name]
    assert deep == {path[-1]: 1, "other": 2}
    assert await stage.state.get("s", "odd") == {"a": {"": 1, "b": {"#x.y[0]": 3}}}


async def test_an_event_goes_by_itself_and_its_end_is_no_change(stage: Stage) -> None:
    await stage.stream.send(NOTICE)
    client = stage.services.clients.dynamodb
    (item,) = client.scan(TableName=stage.table.name)["Items"]
    assert int(item["ttl"]["N"]) * 1000 == stage.clock.now_ms() + 3_600_000
    client.delete_item(TableName=stage.table.name, Key={"pk": item["pk"], "sk": item["sk"]})
    assert len(await stage.changes()) == 1


class _Body:
    def __init__(self, text: str) -> None:
        self._text = text

    def read(self) -> bytes:
        return self._text.encode()
