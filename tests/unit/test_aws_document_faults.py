"""State values and stream items in the table, while others write, replies get lost and the services refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.stub import Stubber

from iii_runtime.adapters.aws.documents import UPDATE_ATTEMPTS
from iii_runtime.core.change import StreamChange
from iii_runtime.core.errors import StoreError
from iii_runtime.ports.state_store import Written
from tests.contract.aws_services import running_services
from tests.unit.aws_documents import GET, INCREMENT, LARGE, NOTICE, Stage, set_op


@pytest.fixture
def stage() -> Iterator[Stage]:
    with running_services() as services:
        yield Stage(services)


class TestTwoHosts:
    """Others write at the same time, and replies get lost."""

    async def test_an_update_is_repeated_on_what_somebody_else_wrote(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"n": 1})
        stage.after("GetItem", stage.somebody_puts("s", "k", "10"))
        stage.calls()
        assert await stage.state.update("s", "k", INCREMENT) == Written(
            old_value={"n": 10}, new_value={"n": 11}, existed=True
        )
        assert [call for call in stage.calls() if call == GET] == [GET]
        assert len(stage.clock.pauses) == 1

    async def test_an_update_of_a_value_that_somebody_deleted_creates_it(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"n": 1})
        key: Any = {"pk": {"S": "S#s"}, "sk": {"S": "k"}}
        delete = stage.services.clients.dynamodb.delete_item
        stage.after("GetItem", lambda: delete(TableName=stage.table.name, Key=key))
        assert await stage.state.update("s", "k", INCREMENT) == Written(
            old_value=None, new_value={"n": 1}, existed=False
        )

    async def test_an_update_does_not_write_over_a_value_that_was_created_meanwhile(self, stage: Stage) -> None:
        stage.after("GetItem", stage.somebody_puts("s", "k", "10"))
        assert (await stage.state.update("s", "k", INCREMENT)).new_value == {"n": 11}

    async def test_a_first_step_does_not_write_over_a_document_that_was_created_meanwhile(self, stage: Stage) -> None:
        """Between the update that was refused, because there was no document, and the write that makes it."""
        stage.after("UpdateItem", stage.somebody_puts("s", "k", "10"))
        written = await stage.state.update("s", "k", [set_op(["steps", "pay"], 1)], NOTICE)
        assert written == Written(old_value={"n": 10}, new_value={"n": 10, "steps": {"pay": 1}}, existed=True)
        assert [type(change).__name__ for change in await stage.changes()] == [
            "StateChange",
            "StateChange",
            "StreamChange",
        ]

    async def test_a_value_deleted_and_created_again_is_another_one(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"n": 1})

        def replace() -> None:
            key: Any = {"pk": {"S": "S#s"}, "sk": {"S": "k"}}
            stage.services.clients.dynamodb.delete_item(TableName=stage.table.name, Key=key)
            stage.somebody_puts("s", "k", "1")()

        stage.after("GetItem", replace)
        await stage.state.update("s", "k", INCREMENT)
        assert len(stage.clock.pauses) == 1

    async def test_an_update_that_never_comes_through_is_a_conflict(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"n": 1})
        first, again = stage.somebody_puts("s", "k", "1", times=99), stage.somebody_puts("s", "k", "2", times=99)
        stage.after("GetItem", first)
        stage.after("PutItem", _unless_recursive(again), times=UPDATE_ATTEMPTS * 2)
        with pytest.raises(StoreError, match="written by others 20 times") as caught:
            await stage.state.update("s", "k", INCREMENT)
        assert caught.value.code == "store_conflict"
        assert len(stage.clock.pauses) == UPDATE_ATTEMPTS

    async def test_an_update_whose_reply_was_lost_is_applied_once(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"n": 1})
        stage.lose_replies("PutItem")
        assert await stage.state.update("s", "k", INCREMENT, NOTICE) == Written(
            old_value={"n": 1}, new_value={"n": 2}, existed=True
        )
        assert await stage.state.get("s", "k") == {"n": 2}
        assert len(await stage.changes()) == 3

    @pytest.mark.parametrize("kind", ["state", "stream"])
    async def test_the_object_of_a_value_whose_reply_was_lost_stays(self, stage: Stage, kind: str) -> None:
        """The repetition finds what it has written itself, which is not what it replaces."""
        stage.lose_replies("PutItem")
        if kind == "state":
            written = await stage.state.set("s", "k", LARGE)
        else:
            written = await stage.stream.set("s", "g", "k", LARGE)
        assert written == Written(old_value=LARGE, new_value=LARGE, existed=True)
        first, second = stage.objects()
        assert stage.expiring() == [first]
        assert stage.linked() == [second]
        assert len(await stage.changes()) == 1

    async def test_a_repetition_does_not_lead_to_an_object_that_somebody_else_let_go(self, stage: Stage) -> None:
        """The reply was lost, another host replaced the value and let its object expire, then it is written again."""
        other = Stage(stage.services)
        other.ids = other.state._documents._ids = other.state._documents._values._ids = stage.ids
        done: list[object] = []

        async def replace(instant: object) -> None:
            if not done:
                done.append(instant)
                assert (await other.state.set("s", "k", LARGE + "2")).old_value == LARGE

        stage.clock.sleep_until = replace  # type: ignore[method-assign]
        stage.lose_replies("PutItem")
        assert (await stage.state.set("s", "k", LARGE)).old_value == LARGE + "2"
        assert len(done) == 1
        assert await stage.state.get("s", "k") == LARGE
        (linked,) = stage.linked()
        assert stage.expiring() == [key for key in stage.objects() if key != linked]

    async def test_a_notice_is_told_once_although_the_reply_of_its_write_was_lost(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {})
        stage.lose_replies("UpdateItem", times=2)
        await stage.state.update("s", "k", [set_op("a", 1)], NOTICE)
        events = [change for change in await stage.changes() if isinstance(change, StreamChange)]
        assert len(events) == 1

    async def test_a_notice_goes_with_its_own_write_only(self, stage: Stage) -> None:
        await stage.state.set("s", "k", {"n": 1})
        for ops in ([set_op("a", 1)], INCREMENT):
            await stage.state.update("s", "k", ops, NOTICE)
            await stage.state.update("s", "k", ops)
        await stage.state.update("s", "k", [set_op("a", 1)], NOTICE)
        await stage.state.set("s", "k", {})
        await stage.state.delete("s", "k")
        kinds = [type(change).__name__ for change in await stage.changes()]
        state, event = "StateChange", "StreamChange"
        assert kinds == [state, state, event, state, state, event, state, state, event, state, state]


class TestRefusals:
    """The services refuse; nothing is half done."""

    async def test_a_missing_table_is_told(self, stage: Stage) -> None:
        stage.services.clients.dynamodb.delete_table(TableName=stage.table.name)
        for operation in (
            stage.state.get("s", "k"),
            stage.state.set("s", "k", 1),
            stage.state.delete("s", "k"),
            stage.state.update("s", "k", [set_op("a", 1)]),
            stage.state.update("s", "k", INCREMENT),
            stage.state.list_values("s"),
            stage.state.list_scopes(),
            stage.stream.send(NOTICE),
        ):
            with pytest.raises(StoreError, match="table shop-test") as caught:
                await operation
            assert caught.value.code == "store_missing"

    async def test_a_missing_bucket_is_told_before_the_table_is_written(self, stage: Stage) -> None:
        stage.services.clients.s3.delete_bucket(Bucket=stage.blobs.bucket)
        with pytest.raises(StoreError, match=f"bucket {stage.blobs.bucket}") as caught:
            await stage.state.set("s", "k", LARGE)
        assert caught.value.code == "store_missing"
        assert await stage.state.get("s", "k") is None

    async def test_the_object_of_a_write_that_was_refused_expires(self, stage: Stage) -> None:
        for ops in ([set_op("", LARGE)], [*INCREMENT, set_op("large", LARGE)]):
            with Stubber(stage.services.clients.dynamodb) as dynamodb:
                if len(ops) > 1:
                    dynamodb.add_response("get_item", {})
                dynamodb.add_client_error("put_item", "AccessDeniedException")
                with pytest.raises(StoreError) as caught:
                    await stage.state.update("s", "k", ops)
            assert caught.value.code == "store_denied"
        assert len(stage.objects()) == 2
        assert stage.expiring() == stage.objects()

    async def test_the_object_of_a_write_that_may_be_done_stays(
        self, stage: Stage, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The first reply was lost, and the repetition refused: the first may be done, with its object."""
        with Stubber(stage.services.clients.dynamodb) as dynamodb:
            dynamodb.add_client_error("put_item", "InternalServerError", http_status_code=500)
            dynamodb.add_client_error("put_item", "ExpiredTokenException")
            with pytest.raises(StoreError):
                await stage.state.set("s", "k", LARGE)
        first, second = stage.objects()
        assert first not in stage.expiring()
        assert stage.expiring() == [second]
        assert "whether it is the value is not known" in caplog.text

    @pytest.mark.parametrize("damage", [{}, {"v": {"S": "no json"}}, {"v": {"N": "1"}}, {"vl": {"M": {}}}])
    async def test_an_item_that_is_no_document_is_told_without_its_content(self, stage: Stage, damage: Any) -> None:
        item = {"pk": {"S": "S#s"}, "sk": {"S": "k"}, "n": {"S": "1"}, "at": {"N": "1"}, **damage}
        stage.services.clients.dynamodb.put_item(TableName=stage.table.name, Item=item)
        with pytest.raises(StoreError, match="the item at S#s / k cannot be read") as caught:
            await stage.state.get("s", "k")
        assert caught.value.code == "store_corrupt"
        assert "no json" not in caught.value.message

    async def test_expired_credentials_are_told_at_once(self, stage: Stage) -> None:
        with Stubber(stage.services.clients.dynamodb) as dynamodb:
            dynamodb.add_client_error("update_item", "ExpiredTokenException")
            with pytest.raises(StoreError, match="credentials have expired") as caught:
                await stage.state.update("s", "k", [set_op("a", 1)])
        assert caught.value.code == "store_denied"
        assert stage.clock.pauses == []

    async def test_a_throttled_write_is_repeated(self, stage: Stage) -> None:
        with Stubber(stage.services.clients.dynamodb) as dynamodb:
            dynamodb.add_client_error("put_item", "ThrottlingException")
            dynamodb.add_client_error("put_item", "TransactionConflictException")
            dynamodb.add_response("put_item", {})
            await stage.state.set("s", "k", 1)
        assert len(stage.clock.pauses) == 2

    async def test_an_update_that_dynamodb_cannot_carry_out_is_read_and_written(self, stage: Stage) -> None:
        """What an emulator does not refuse: an expression that is too long, for one."""
        item = {"pk": {"S": "S#s"}, "sk": {"S": "k"}, "v": {"M": {}}, "n": {"S": "1"}, "at": {"N": "1"}}
        with Stubber(stage.services.clients.dynamodb) as dynamodb:
            dynamodb.add_client_error("update_item", "ValidationException", "Expression size has exceeded")
            dynamodb.add_response("get_item", {"Item": item})  # type: ignore[arg-type, unused-ignore]
            dynamodb.add_response("put_item", {})
            written = await stage.state.update("s", "k", [set_op("a", 1)])
        assert written == Written(old_value={}, new_value={"a": 1}, existed=True)


def _unless_recursive(action: Any) -> Any:
    running = [False]

    def act() -> None:
        if not running[0]:
            running[0] = True
            action()
            running[0] = False

    return act
