"""What the change feed pushes to viewers on WebSocket connections, and what it spends on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from iii_runtime.engine.stream_push import MAX_POSTED_BYTES
from tests.host.feed_stage import Stage, running_feed


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with running_feed(monkeypatch) as stage:
        yield stage


async def test_a_viewer_that_is_gone_is_removed_from_the_table_and_costs_nothing_from_then_on(here: Stage) -> None:
    for name in ("a", "b"):
        await here.join(name, "g1", "g2")
    here.gateway.hang_up("a")
    await here.set(1)
    assert await here.deliver() == []
    assert [member.connection_id for member in await here.connections.members("orders", "g2")] == ["b"]
    here.gateway.posts = 0
    await here.set(2)
    assert await here.deliver() == []
    assert (here.gateway.posts, here.gateway.events("b")) == (1, [1, 2])


async def test_a_viewer_that_takes_nothing_is_closed_and_the_batch_is_done(here: Stage) -> None:
    for name in ("slow", "b"):
        await here.join(name, "g1")
    here.gateway.refuse("slow", 100)
    for number in range(3):
        await here.set(number)
    assert await here.deliver() == []
    assert (here.gateway.connected, here.gateway.events("b")) == ({"b"}, [0, 1, 2])
    assert sum(pause.total_seconds() for pause in here.clock.pauses) < 5


async def test_a_viewer_that_joins_anew_after_a_loss_is_served_again(here: Stage) -> None:
    await here.join("c", "g1")
    here.gateway.refuse("c", 1, is_transient=False)
    here.gateway.close_refusals["c"] = deque(here.gateway.refusals["c"])
    await here.set(1)
    assert await here.deliver() == []
    assert [member.is_lost for member in await here.connections.members("orders", "g1")] == [True]
    await here.join("c", "g1")
    await here.set(2)
    assert await here.deliver() == []
    assert here.gateway.events("c") == [2]


async def test_a_change_too_large_for_a_frame_still_reaches_its_triggers_whole(here: Stage) -> None:
    await here.join("c", "g1")
    large = "x" * (600 * 1024)  # kept beside the table
    for data in (1, large, 2):
        await here.set(data)
    assert await here.deliver() == []
    assert here.gateway.events("c") == [1, "frame_too_large", 2]
    assert len(large) > MAX_POSTED_BYTES
    assert here.seen() == [1, large, 2]


async def test_a_batch_asks_once_for_each_group_and_not_at_all_while_nobody_is_connected(here: Stage) -> None:
    def asked(event: dict[str, Any]) -> list[str]:
        assert event["Records"]
        return [call.removeprefix("dynamodb:") for call in here.services.calls if call.startswith("dynamodb:")]

    async def deliver_six() -> list[str]:
        for number in range(6):
            await here.set(number, group=f"g{number % 3}")
        event = here.batch()
        here.services.calls.clear()
        assert await here.deliver(event) == []
        return asked(event)

    assert await deliver_six() == ["GetItem"]
    await here.join("c", "g1")
    assert await deliver_six() == ["GetItem", "Query", "Query", "Query"]
    await here.state.set("orders", "o1", 1)
    event = here.batch()
    here.services.calls.clear()
    assert await here.deliver(event) == []
    assert asked(event) == []


async def test_whoever_joins_while_a_batch_is_under_way_misses_nothing(
    here: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch knows of no members; the store, read after the join, has what the batch holds."""
    await here.join("other")
    await here.set(1)
    original = here.connections.members

    async def members(stream_name: str, group_id: str) -> Any:
        found = await original(stream_name, group_id)
        await here.join("late", "g1")
        late.append(await here.stream.list_items("orders", "g1"))
        return found

    late: list[Any] = []
    monkeypatch.setattr(here.connections, "members", members)
    assert await here.deliver() == []
    assert (late, here.gateway.events("late")) == ([[1]], [])
    monkeypatch.setattr(here.connections, "members", original)
    await here.set(2)
    assert await here.deliver() == []
    assert here.gateway.events("late") == [2]
