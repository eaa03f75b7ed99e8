"""State and streams: iii's shapes, triggers in order for each key, events on streams, progress in one write."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from iii_runtime import (
    InvocationError,
    OnState,
    OnStream,
    StepTracker,
    TriggerAction,
    Worker,
    current_invocation,
)
from iii_runtime.core.config import StateConfig
from iii_runtime.engine.stores import Stores
from iii_runtime.testing import Harness

Host = Callable[..., Harness]


async def call(harness: Harness, function_id: str, **payload: Any) -> Any:
    return await harness.trigger({"function_id": function_id, "payload": payload})


class Counting:
    """An adapter that counts its calls."""

    def __init__(self, inner: Any, calls: Counter[str], name: str) -> None:
        self._inner = inner
        self._calls = calls
        self._name = name

    def __getattr__(self, method: str) -> Any:
        self._calls[f"{self._name}.{method}"] += 1
        return getattr(self._inner, method)


def counting(calls: Counter[str]) -> Callable[[Stores], Stores]:
    def wrap(stores: Stores) -> Stores:
        ports: dict[str, Any] = {
            name: Counting(getattr(stores, name), calls, name) for name in ("state", "stream", "queue", "blobs")
        }
        return dataclasses.replace(stores, **ports)

    return wrap


class TestState:
    async def test_the_functions_have_the_shapes_of_iii(self, host: Host) -> None:
        async with host() as harness:
            at: dict[str, Any] = {"scope": "orders", "key": "o1"}
            assert await call(harness, "state::get", **at) is None
            assert await call(harness, "state::set", **at, value={"n": 1}) == {"old_value": None, "new_value": {"n": 1}}
            assert await call(harness, "state::set", **at, data=[2]) == {"old_value": {"n": 1}, "new_value": [2]}
            assert await call(harness, "state::get", **at) == [2]
            await call(harness, "state::set", scope="orders", key="o0", value="zero")
            await call(harness, "state::set", scope="carts", key="c", value=None)
            assert await call(harness, "state::list", scope="orders") == ["zero", [2]]
            assert await call(harness, "state::list", scope="nothing") == []
            assert await call(harness, "state::list_groups") == {"groups": ["carts", "orders"]}
            assert await call(harness, "state::delete", **at) == [2]
            assert await call(harness, "state::delete", **at) is None
            assert await call(harness, "state::list", scope="orders") == ["zero"]

    async def test_operations_that_cannot_apply_are_reported_and_the_others_apply(self, host: Host) -> None:
        async with host() as harness:
            at: dict[str, Any] = {"scope": "orders", "key": "o1"}
            first = await call(
                harness, "state::update", **at, ops=[{"type": "set", "path": "status", "value": "created"}]
            )
            assert first == {"old_value": None, "new_value": {"status": "created"}}
            ops = [
                {"type": "increment", "path": "tries", "by": 2},
                {"type": "increment", "path": "status", "by": 1},
                {"type": "set", "path": "a.b", "value": 1},
                {"type": "explode"},
                "nonsense",
            ]
            result = await call(harness, "state::update", **at, ops=ops)
            assert result["old_value"] == {"status": "created"}
            assert result["new_value"] == {"status": "created", "tries": 2, "a.b": 1}
            assert [(error["op_index"], error["code"]) for error in result["errors"]] == [
                (1, "increment.not_number"),
                (3, "op.unknown"),
                (4, "op.invalid"),
            ]
            for error in result["errors"]:
                assert set(error) == {"op_index", "code", "message", "doc_url"}

    async def test_a_value_beyond_the_limit_is_refused(self, host: Host) -> None:
        async with host(state=StateConfig(max_value_bytes=100)) as harness:
            await call(harness, "state::set", scope="s", key="k", value="x" * 98)
            for function_id, more in (
                ("state::set", {"value": "x" * 99}),
                ("state::update", {"ops": [{"type": "append", "value": "y"}]}),
            ):
                with pytest.raises(InvocationError) as refusal:
                    await call(harness, function_id, scope="s", key="k", **more)
                assert refusal.value.code == "VALUE_TOO_LARGE"
            assert await call(harness, "state::get", scope="s", key="k") == "x" * 98

    async def test_a_caller_shares_no_value_with_the_store(self, worker: Worker, host: Host) -> None:
        def handler(data: Any) -> Any:
            value = {"items": [1]}
            written = worker.trigger(
                {"function_id": "state::set", "payload": {"scope": "s", "key": "k", "value": value}}
            )
            value["items"].append(2)
            written["new_value"]["items"].append(3)
            read = worker.trigger({"function_id": "state::get", "payload": {"scope": "s", "key": "k"}})
            read["items"].append(4)
            return worker.trigger({"function_id": "state::get", "payload": {"scope": "s", "key": "k"}})

        worker.register_function("a::b", handler)
        async with host() as harness:
            assert await harness.trigger({"function_id": "a::b"}) == {"items": [1]}


class TestStateTriggers:
    async def test_a_change_fires_the_matching_triggers_with_iiis_event(self, worker: Worker, host: Host) -> None:
        seen: list[tuple[str, Any]] = []
        for name, kind in {
            "any": OnState(),
            "scope": OnState("orders"),
            "key": OnState("orders", "o1"),
            "key-anywhere": OnState(key="o1"),
            "other-scope": OnState("carts"),
            "other-key": OnState("orders", "o2"),
        }.items():
            worker.function(f"on::{name}", triggers=[kind])(lambda data, name=name: seen.append((name, data)))
        async with host() as harness:
            at: dict[str, Any] = {"scope": "orders", "key": "o1"}
            await call(harness, "state::set", **at, value=1)
            await call(harness, "state::update", **at, ops=[{"type": "set", "path": "", "value": 2}])
            await call(harness, "state::delete", **at)
            await harness.settle()
            events: list[dict[str, Any]] = [
                {"event_type": "state:created", "old_value": None, "new_value": 1},
                {"event_type": "state:updated", "old_value": 1, "new_value": 2},
                {"event_type": "state:deleted", "old_value": 2, "new_value": None},
            ]
            assert seen == [
                (name, {"type": "state", **at, **event})
                for event in events
                for name in ("any", "scope", "key", "key-anywhere")
            ]

    async def test_a_set_of_the_same_value_and_a_delete_of_nothing_fire_too(self, worker: Worker, host: Host) -> None:
        seen: list[str] = []
        worker.function("on::state", triggers=[OnState()])(lambda data: seen.append(data["event_type"]))
        async with host() as harness:
            await call(harness, "state::delete", scope="s", key="k")
            await call(harness, "state::set", scope="s", key="k", value=1)
            await call(harness, "state::set", scope="s", key="k", value=1)
            await harness.settle()
            assert seen == ["state:deleted", "state:created", "state:updated"]

    async def test_changes_of_one_key_are_delivered_in_order(self, worker: Worker, host: Host) -> None:
        seen: dict[str, list[int]] = {"a": [], "b": [], "c": []}
        worker.function("on::state", triggers=[OnState()])(lambda data: seen[data["key"]].append(data["new_value"]))
        async with host() as harness:
            for number in range(30):
                await call(harness, "state::set", scope="s", key="abc"[number % 3], value=number)
            await harness.settle()
            assert seen == {key: list(range(start, 30, 3)) for start, key in enumerate("abc")}

    async def test_an_error_stops_neither_the_next_trigger_nor_the_next_change_and_is_not_repeated(
        self, worker: Worker, host: Host, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen: list[Any] = []

        def fail(data: Any) -> None:
            seen.append(("fails", data["new_value"]["n"]))
            data["new_value"]["n"] = "changed by the failing one"
            raise ValueError("no")

        worker.function("a::fails", triggers=[OnState("s")])(fail)
        worker.function("b::hears", triggers=[OnState("s")])(
            lambda data: seen.append(("hears", data["new_value"]["n"]))
        )
        async with host() as harness:
            for value in (1, 2):
                await call(harness, "state::set", scope="s", key="k", value={"n": value})
            await harness.settle()
            assert seen == [("fails", 1), ("hears", 1), ("fails", 2), ("hears", 2)]
        errors = [record.__dict__["iii"]["error"] for record in caplog.records if record.name == "iii_runtime.change"]
        assert errors == ["invocation_failed: no"] * 2

    async def test_a_condition_skips_on_false_and_its_error_skips_too(self, worker: Worker, host: Host) -> None:
        seen: list[Any] = []

        def condition(data: Any) -> Any:
            if data["new_value"] == "broken":
                raise ValueError("cannot tell")
            return data["new_value"]

        worker.register_function("is::wanted", condition)
        worker.function("a::hears", triggers=[OnState("s", condition="is::wanted")])(
            lambda data: seen.append(data["new_value"])
        )
        async with host() as harness:
            for value in (False, True, None, 0, "broken", "x"):
                await call(harness, "state::set", scope="s", key="k", value=value)
            await harness.settle()
            assert seen == [True, None, 0, "x"]

    async def test_a_trigger_may_change_state_again(self, worker: Worker, host: Host) -> None:
        @worker.function("on::order", triggers=[OnState("orders")])
        def count(data: Any) -> None:
            ops = [{"type": "increment", "path": "count", "by": 1}]
            worker.trigger({"function_id": "state::update", "payload": {"scope": "stats", "key": "orders", "ops": ops}})

        async with host() as harness:
            for number in range(5):
                await call(harness, "state::set", scope="orders", key=f"o{number}", value=number)
            await harness.settle()
            assert await call(harness, "state::get", scope="stats", key="orders") == {"count": 5}

    async def test_triggers_can_be_switched_off(self, worker: Worker, host: Host) -> None:
        seen: list[Any] = []
        worker.function("on::state", triggers=[OnState()])(seen.append)
        async with host(state=StateConfig(triggers_enabled=False)) as harness:
            await call(harness, "state::set", scope="s", key="k", value=1)
            await harness.settle()
            assert seen == []

    async def test_a_value_of_a_megabyte_fires_as_it_is(self, worker: Worker, host: Host) -> None:
        seen: list[Any] = []
        worker.function("on::state", triggers=[OnState()])(lambda data: seen.append(data["new_value"]))
        async with host() as harness:
            await call(harness, "state::set", scope="s", key="k", value="x" * 1_000_000)
            await harness.settle()
            assert seen == ["x" * 1_000_000]

    async def test_the_deepest_value_fires_too(self, worker: Worker, host: Host) -> None:
        value: Any = 1
        for _ in range(60):
            value = [value]
        seen: list[Any] = []
        worker.function("on::state", triggers=[OnState()])(lambda data: seen.append(data["new_value"]))
        async with host() as harness:
            ops = [{"type": "set", "path": [f"p{n}" for n in range(4)], "value": value}]
            await call(harness, "state::update", scope="s", key="k", ops=ops)
            await harness.settle()
            assert seen == [{"p0": {"p1": {"p2": {"p3": value}}}}]

    async def test_a_change_that_was_stored_is_delivered_after_a_crash(self, worker: Worker, host: Host) -> None:
        """The first life dies while the function runs; the change is stored until it was delivered to its end."""
        seen: list[Any] = []
        started, go = threading.Event(), threading.Event()

        @worker.function("on::state", triggers=[OnState()])
        def on_state(data: dict[str, Any]) -> None:
            seen.append(data["new_value"])
            started.set()
            if len(seen) == 1:
                go.wait(20)

        async with host() as harness:
            await call(harness, "state::set", scope="s", key="k", value=1)
            assert await asyncio.to_thread(started.wait, 10)
            await harness.restart()
            await harness.settle()
            assert seen == [1, 1]
            go.set()


class TestStreams:
    async def test_the_functions_have_the_shapes_of_iii(self, host: Host) -> None:
        async with host() as harness:
            at: dict[str, Any] = {"stream_name": "chat", "group_id": "room", "item_id": "m1"}
            assert await call(harness, "stream::get", **at) is None
            assert await call(harness, "stream::set", **at, data={"n": 1}) == {"old_value": None, "new_value": {"n": 1}}
            ops = [{"type": "increment", "path": "n", "by": 1}, {"type": "explode"}]
            updated = await call(harness, "stream::update", **at, ops=ops)
            assert (updated["old_value"], updated["new_value"], len(updated["errors"])) == ({"n": 1}, {"n": 2}, 1)
            assert await call(harness, "stream::get", **at) == {"n": 2}
            await call(harness, "stream::set", **{**at, "item_id": "m0"}, data="first")
            assert await call(harness, "stream::list", stream_name="chat", group_id="room") == ["first", {"n": 2}]
            assert await call(harness, "stream::list_groups", stream_name="chat") == ["room"]
            assert await call(harness, "stream::list_all") == {
                "stream": [{"id": "chat", "groups": ["room"]}],
                "count": 1,
            }
            sent = await call(harness, "stream::send", stream_name="chat", group_id="room", type="typing", data=1)
            assert sent is None
            assert await call(harness, "stream::delete", **at) == {"old_value": {"n": 2}}
            assert await call(harness, "stream::delete", **at) == {"old_value": None}
            assert await call(harness, "stream::list", stream_name="chat", group_id="room") == ["first"]

    async def test_changes_and_events_are_pushed_in_order_and_fire_the_matching_triggers(
        self, worker: Worker, host: Host
    ) -> None:
        seen: list[tuple[str, Any]] = []
        for name, kind in {
            "stream": OnStream("chat"),
            "group": OnStream("chat", "room"),
            "item": OnStream("chat", "room", "m1"),
            "other-group": OnStream("chat", "hall"),
            "other-stream": OnStream("news"),
        }.items():
            worker.function(f"on::{name}", triggers=[kind])(lambda data, name=name: seen.append((name, data)))
        async with host() as harness:
            at: dict[str, Any] = {"stream_name": "chat", "group_id": "room", "item_id": "m1"}
            await call(harness, "stream::set", **at, data=1)
            await call(harness, "stream::set", **at, data=2)
            await call(harness, "stream::delete", **at)
            await call(harness, "stream::delete", **at)
            await call(
                harness, "stream::send", stream_name="chat", group_id="room", id="e1", event_type="typing", data=3
            )
            await harness.settle()
            head = {"type": "stream", "timestamp": harness.clock.now_ms(), "streamName": "chat", "groupId": "room"}
            payloads = [
                {**head, "id": "m1", "event": {"type": "create", "data": 1}},
                {**head, "id": "m1", "event": {"type": "update", "data": 2}},
                {**head, "id": "m1", "event": {"type": "delete", "data": 2}},
                {**head, "id": "e1", "event": {"type": "event", "event": {"type": "typing", "data": 3}}},
            ]
            assert [change.to_payload() for change in harness.pushed] == payloads
            assert [payload for name, payload in seen if name == "stream"] == payloads
            assert [payload for name, payload in seen if name == "group"] == payloads
            assert [payload for name, payload in seen if name == "item"] == payloads[:3]
            assert {name for name, _ in seen} == {"stream", "group", "item"}

    async def test_a_trigger_that_fails_does_not_keep_a_change_from_being_pushed(
        self, worker: Worker, host: Host
    ) -> None:
        def fail(data: Any) -> None:
            raise ValueError("no")

        worker.function("on::chat", triggers=[OnStream("chat")])(fail)
        async with host() as harness:
            await call(harness, "stream::send", stream_name="chat", group_id="g", type="typing", data=None)
            await harness.settle()
            assert [change.event_type for change in harness.pushed] == ["typing"]

    async def test_a_condition_skips_on_false_only(self, worker: Worker, host: Host) -> None:
        seen: list[Any] = []
        worker.register_function("is::wanted", lambda data: data["event"]["data"])
        worker.function("on::chat", triggers=[OnStream("chat", condition="is::wanted")])(
            lambda data: seen.append(data["event"]["data"])
        )
        async with host() as harness:
            for value in (False, True, None, 0):
                await call(harness, "stream::set", stream_name="chat", group_id="g", item_id="i", data=value)
            await harness.settle()
            assert seen == [True, None, 0]


class TestProgress:
    @pytest.fixture
    def tracker(self, worker: Worker) -> StepTracker:
        return StepTracker(worker, scope="orders", stream_name="order-progress")

    async def test_a_step_is_one_write_with_its_event(self, worker: Worker, host: Host, tracker: StepTracker) -> None:
        calls: Counter[str] = Counter()

        def pay(data: Any) -> None:
            tracker.track("o1", "payment", "running", {"amount": 5, "step": "mine", "status": "mine"})

        worker.register_function("orders::pay", pay)
        async with host(wrap=counting(calls)) as harness:
            await harness.settle()
            calls.clear()
            await harness.trigger({"function_id": "orders::pay"})
            assert {name: count for name, count in calls.items() if not name.startswith("queue")} == {"state.update": 1}
            await harness.settle()
            record = {"amount": 5, "step": "mine", "status": "running", "at": "2026-01-01T00:00:00.000+00:00"}
            assert await call(harness, "state::get", scope="orders", key="o1") == {
                "current_step": "payment",
                "status": "running",
                "steps": {"payment": record},
            }
            (pushed,) = harness.pushed
            assert (pushed.stream_name, pushed.group_id, pushed.event_type) == ("order-progress", "o1", "step_update")
            assert pushed.data == {**record, "step": "payment"}
            assert pushed.item_id == f"payment-{harness.clock.now_ms()}"

    async def test_a_step_of_a_message_says_which_attempt_of_which_message(
        self, worker: Worker, host: Host, tracker: StepTracker
    ) -> None:
        async def pay(data: Any) -> None:
            invocation = current_invocation()
            assert invocation is not None
            await tracker.track_async(
                "o1", "payment", "retrying" if invocation.attempt < 2 else "complete", overall="x"
            )
            if invocation.attempt < 2:
                raise ValueError("later")

        worker.register_function("orders::pay", pay)
        async with host() as harness:
            result = await harness.trigger(
                {"function_id": "orders::pay", "action": TriggerAction.Enqueue(queue="mail")}
            )
            await harness.settle()
            state = await call(harness, "state::get", scope="orders", key="o1")
            assert state["status"] == "x"
            assert state["steps"]["payment"] == {
                "status": "complete",
                "at": "2026-01-01T00:00:01.000+00:00",
                "attempt": 2,
                "message_receipt_id": result["messageReceiptId"],
            }
            events: list[Any] = [change.data for change in harness.pushed]
            assert [(event["step"], event["status"], event["attempt"]) for event in events] == [
                ("payment", "retrying", 1),
                ("payment", "complete", 2),
            ]

    @pytest.mark.parametrize(
        ("key", "step", "detail"),
        [("", "payment", {}), ("o1", "", {}), ("o1", "payment", {"x": {1}}), ("o1", "constructor", {})],
    )
    async def test_progress_that_cannot_be_recorded_fails_no_step_and_is_logged(
        self,
        worker: Worker,
        host: Host,
        tracker: StepTracker,
        caplog: pytest.LogCaptureFixture,
        key: str,
        step: str,
        detail: dict[str, Any],
    ) -> None:
        def pay(data: Any) -> str:
            tracker.track(key, step, "running", detail)
            return "paid"

        worker.register_function("orders::pay", pay)
        async with host() as harness:
            assert await harness.trigger({"function_id": "orders::pay"}) == "paid"
        assert [record.getMessage() for record in caplog.records if record.name == "iii.logger"] == [
            "step progress was not recorded"
        ]
