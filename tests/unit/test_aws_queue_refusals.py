"""Refusals of the services while an outcome is stored: typed, waited out where that helps, and never acknowledged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from iii_runtime.core.errors import StoreError
from tests.contract.sqs_stage import ERROR, FIFO, LEASE, STANDARD, Stage, open_stage

SOON = timedelta(seconds=5)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with open_stage(monkeypatch) as opened:
        yield opened


@pytest.mark.parametrize("code", ["ReceiptHandleIsInvalid", "InvalidParameterValue"])
async def test_an_expired_handle_is_a_lost_lease(stage: Stage, code: str) -> None:
    await stage.send(FIFO, "m1")
    delivery = await stage.receive_one(FIFO)
    stage.mishaps.refuse["DeleteMessage"] = [code]
    assert not await stage.queue.acknowledge(delivery)


async def test_a_refused_acknowledgement_is_an_error_and_not_a_lost_lease(stage: Stage) -> None:
    await stage.send(STANDARD, "m1")
    delivery = await stage.receive_one(STANDARD)
    stage.mishaps.refuse["DeleteMessage"] = ["AccessDenied"]
    with pytest.raises(StoreError) as caught:
        await stage.queue.acknowledge(delivery)
    assert caught.value.code == "store_denied"


@pytest.mark.parametrize("operation", ["fail", "bury"])
async def test_an_outcome_the_table_does_not_take_leaves_the_message(stage: Stage, operation: str) -> None:
    """Not acknowledged, not counted: it comes back."""
    await stage.send(STANDARD, "m1")
    delivery = await stage.receive_one(STANDARD)
    stage.mishaps.refuse["UpdateItem"] = ["ProvisionedThroughputExceededException"] * 6
    queue = stage.queue
    outcome = queue.fail(delivery, ERROR, SOON) if operation == "fail" else queue.bury(delivery, "failed", ERROR, 1)
    with pytest.raises(StoreError) as caught:
        await outcome
    assert caught.value.code == "store_throttled"
    stage.clock.advance(LEASE)
    assert (await stage.receive_one(STANDARD)).attempt == 1
    assert await stage.listed() == []


async def test_throttles_are_waited_out(stage: Stage) -> None:
    await stage.send(STANDARD, "m1")
    delivery = await stage.receive_one(STANDARD)
    stage.mishaps.refuse["UpdateItem"] = ["ThrottlingException"] * 3
    stage.mishaps.refuse["SendMessage"] = ["RequestThrottled"] * 3
    assert await stage.queue.bury(delivery, "failed", ERROR, 1)
    assert await stage.listed() == ["m1"]
    assert len(stage.clock.pauses) == 6


async def test_a_queue_that_is_none_of_the_apps_is_told(stage: Stage) -> None:
    await stage.send(STANDARD, "m1")
    delivery = await stage.receive_one(STANDARD)
    stage.queue.deployed.clear()
    with pytest.raises(StoreError) as caught:
        await stage.queue.acknowledge(delivery)
    assert caught.value.code == "store_missing"
