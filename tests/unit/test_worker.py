"""The authoring interface: what can be registered, what is refused with which error, how `trigger` gets to a host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from iii_runtime import (
    Cron,
    Http,
    InitOptions,
    InvocationError,
    NotAttachedError,
    Queue,
    RegistrationError,
    StepTracker,
    TriggerAction,
    TriggerRequest,
    Worker,
    register_worker,
)
from iii_runtime.core.registry import Catalog
from iii_runtime.core.triggers import UnknownTrigger
from iii_runtime.core.worker import collecting_workers


class Order(BaseModel):
    order_id: str


class RecordingInvoker:
    """What a host attaches: answers with the request."""

    def __init__(self, error: Exception | None = None) -> None:
        self.requests: list[TriggerRequest] = []
        self.error = error

    def trigger(self, request: TriggerRequest) -> Any:
        self.requests.append(request)
        if self.error is not None:
            raise self.error
        return "answer"

    async def trigger_async(self, request: TriggerRequest) -> Any:
        return self.trigger(request)


@pytest.fixture
def worker() -> Worker:
    return register_worker(worker_name="orders")


def echo(data: object) -> object:
    """Say it again.

    More text.
    """
    return data


class TestRegisterWorker:
    @pytest.mark.parametrize(
        "make",
        [
            lambda: register_worker("ws://127.0.0.1:49134", InitOptions(worker_name="orders")),
            lambda: register_worker(address="ws://x", options=InitOptions(worker_name="orders")),
            lambda: register_worker(options={"worker_name": "orders"}),
            lambda: register_worker(None, {"workerName": "orders", "otel": {}}),
            lambda: register_worker(worker_name="orders"),
            lambda: register_worker(options=InitOptions(worker_name="other"), worker_name="orders"),
            lambda: register_worker(options={"workerName": "other"}, worker_name="orders"),
        ],
    )
    def test_every_spelling_names_the_worker(self, make: Callable[[], Worker]) -> None:
        assert make().name == "orders"

    def test_it_needs_no_argument_and_no_server(self) -> None:
        worker = register_worker()
        assert worker.name == "worker"
        assert worker.options.invocation_timeout_ms == 30_000

    @pytest.mark.parametrize(
        "options",
        [
            {
                "worker_name": "orders",
                "worker_description": "Orders.",
                "invocation_timeout_ms": 5,
                "namespace": "shop",
                "enable_metrics_reporting": False,
                "reconnection_config": {"max_retries": 3},
                "otel": {"enabled": False},
                "headers": {"x": "y"},
                "telemetry": {"language": "python"},
            },
            {
                "workerName": "orders",
                "workerDescription": "Orders.",
                "invocationTimeoutMs": 5,
                "namespace": "shop",
                "enableMetricsReporting": False,
                "reconnectionConfig": {"max_retries": 3},
                "otel": {"enabled": False},
                "headers": {"x": "y"},
                "telemetry": {"language": "python"},
            },
        ],
        ids=["python", "javascript"],
    )
    def test_every_option_of_iii_is_taken_from_a_dict_in_both_spellings(self, options: dict[str, Any]) -> None:
        assert register_worker(options=options).options == InitOptions(
            worker_name="orders",
            worker_description="Orders.",
            invocation_timeout_ms=5,
            namespace="shop",
            enable_metrics_reporting=False,
            reconnection_config={"max_retries": 3},
            otel={"enabled": False},
            headers={"x": "y"},
            telemetry={"language": "python"},
        )

    def test_a_name_beside_the_options_keeps_the_others(self) -> None:
        worker = register_worker(options={"invocation_timeout_ms": 5}, worker_name="orders")
        assert (worker.name, worker.options.invocation_timeout_ms) == ("orders", 5)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"workername": "orders"}, r"unknown option 'workername'; did you mean 'worker_?[nN]ame'\?"),
            ({"invocation_timeout": 5}, "unknown option 'invocation_timeout'; did you mean 'invocation_timeout_ms'"),
            ({"port": 5}, r"unknown option 'port'; known are .*worker_name"),
            ({5: "orders"}, "unknown option 5"),
            ({"worker_name": "a", "workerName": "a"}, "option 'worker_name' is given in both spellings"),
            ("orders", "options must be InitOptions or a dict, found 'orders'"),
        ],
    )
    def test_an_option_that_does_not_exist_is_a_type_error(self, options: Any, message: str) -> None:
        with pytest.raises(TypeError, match=message):
            register_worker(options=options)

    def test_a_refused_worker_is_not_collected(self) -> None:
        with collecting_workers() as found, pytest.raises(TypeError):
            register_worker(options={"port": 5})
        assert found == []

    @pytest.mark.parametrize("namespace", ["", " \t", 5])
    def test_a_blank_namespace_is_a_value_error_as_in_iii(self, namespace: Any) -> None:
        with pytest.raises(ValueError, match="namespace must be a text that is not blank"):
            InitOptions(namespace=namespace)

    @pytest.mark.parametrize("timeout", [0, -1, True, 1.5, "5", None, 2**31])
    def test_a_timeout_that_cannot_work_is_a_value_error(self, timeout: Any) -> None:
        with pytest.raises(ValueError, match="invocation_timeout_ms must be an integer from 1 to"):
            InitOptions(invocation_timeout_ms=timeout)

    def test_hosts_collect_the_workers_a_module_creates(self) -> None:
        before = register_worker()
        with collecting_workers() as outer:
            first = register_worker()
            with collecting_workers() as inner:
                second = register_worker()
            third = register_worker()
        after = register_worker()
        assert outer == [first, third]
        assert inner == [second]
        assert before not in outer
        assert after not in outer


class TestRegisterFunction:
    def test_a_function_keeps_what_it_was_registered_with(self, worker: Worker) -> None:
        reference = worker.register_function(
            "orders::create",
            echo,
            description="Creates.",
            metadata={"team": "a"},
            request_format={"type": "object"},
            response_format={"type": "null"},
            timeout=timedelta(seconds=5),
        )
        (function,) = worker.registry.functions()
        assert reference.id == function.id == "orders::create"
        assert (function.description, function.metadata, function.timeout) == (
            "Creates.",
            {"team": "a"},
            timedelta(seconds=5),
        )
        assert (function.request_format, function.response_format) == ({"type": "object"}, {"type": "null"})
        assert function.source.startswith(__file__)

    @pytest.mark.parametrize("function_id", [None, 5, b"a", {"id": "a"}, ["a"]])
    def test_an_id_that_is_no_string_is_a_type_error(self, worker: Worker, function_id: Any) -> None:
        with pytest.raises(TypeError, match="a function id must be a string"):
            worker.register_function(function_id, echo)
        with pytest.raises(TypeError, match="a function id must be a string"):
            worker.function(function_id)

    @pytest.mark.parametrize("function_id", ["", " ", "\t\n"])
    def test_a_blank_id_is_a_value_error_in_iiis_words(self, worker: Worker, function_id: str) -> None:
        with pytest.raises(ValueError, match=r"^id is required$"):
            worker.register_function(function_id, echo)
        with pytest.raises(ValueError, match=r"^id is required$"):
            worker.function(function_id)

    def test_a_taken_id_is_a_value_error_that_names_both_places(self, worker: Worker) -> None:
        worker.register_function("a::b", echo)
        message = r"^function id 'a::b' already registered, at .*test_worker\.py:\d+; again at .*test_worker\.py:\d+"
        with pytest.raises(ValueError, match=message):
            worker.register_function("a::b", lambda data: data)
        with pytest.raises(RegistrationError, match=message):
            worker.function("a::b")(echo)
        assert len(worker.registry.functions()) == 1

    @pytest.mark.parametrize(
        "function_id", ["state::set", "stream::x", "iii::track_step", "engine::x", "publish", "enqueue"]
    )
    def test_a_reserved_id_is_refused(self, worker: Worker, function_id: str) -> None:
        with pytest.raises(ValueError, match="is reserved for the runtime's own functions"):
            worker.register_function(function_id, echo)

    @pytest.mark.parametrize("function_id", ["x" * 257, "a\0b", "\ud800"])
    def test_an_id_that_no_store_could_keep_is_refused(self, worker: Worker, function_id: str) -> None:
        with pytest.raises(ValueError, match="a function id must"):
            worker.register_function(function_id, echo)

    @pytest.mark.parametrize("handler", [None, 5, "orders.create", {"url": "http://x"}])
    def test_a_handler_that_cannot_be_called_is_a_type_error(self, worker: Worker, handler: Any) -> None:
        with pytest.raises(TypeError, match="'a::b': the handler must be callable"):
            worker.register_function("a::b", handler)
        with pytest.raises(TypeError, match="'a::b': the handler must be callable"):
            worker.function("a::b")(handler)

    @pytest.mark.parametrize("timeout", [timedelta(0), timedelta(seconds=-1), 5, "5"])
    def test_a_timeout_must_be_a_positive_duration(self, worker: Worker, timeout: Any) -> None:
        with pytest.raises(RegistrationError, match="'a::b': timeout must be a positive timedelta"):
            worker.register_function("a::b", echo, timeout=timeout)
        with pytest.raises(RegistrationError, match="'a::b': timeout must be a positive timedelta"):
            worker.function("a::b", timeout=timeout)(echo)
        assert worker.registry.functions() == []

    def test_an_unregistered_function_is_gone_and_its_id_free(self, worker: Worker) -> None:
        reference = worker.register_function("a::b", echo)
        reference.unregister()
        reference.unregister()
        assert worker.registry.functions() == []
        worker.register_function("a::b", echo)

    def test_functions_registered_in_a_loop_are_each_their_own(self, worker: Worker) -> None:
        for number in range(3):

            @worker.function(f"shard::{number}", triggers=[Queue("default")])
            def handle(data: object, number: int = number) -> int:
                return number

        functions = worker.registry.functions()
        assert [function.id for function in functions] == ["shard::0", "shard::1", "shard::2"]
        plans = [function.plan for function in functions]
        assert [plan and plan.bind(None, "direct", None)() for plan in plans] == [0, 1, 2]
        assert [trigger.function_id for trigger in worker.registry.triggers()] == ["shard::0", "shard::1", "shard::2"]


class TestDecorator:
    def test_it_registers_the_function_with_its_triggers_and_returns_the_handler(self, worker: Worker) -> None:
        decorated = worker.function("orders::create", triggers=[Http("POST", "/orders"), Cron("0 0 * * * *")])(echo)
        assert decorated is echo
        (function,) = worker.registry.functions()
        assert function.description == "Say it again."
        assert [trigger.kind for trigger in worker.registry.triggers()] == [
            Http("POST", "/orders"),
            Cron("0 0 * * * *"),
        ]
        assert {trigger.source for trigger in worker.registry.triggers()} == {function.source}

    def test_it_plans_models(self, worker: Worker) -> None:
        @worker.function("orders::create")
        def create(order: Order) -> str:
            return order.order_id

        (function,) = worker.registry.functions()
        assert function.plan is not None
        assert function.plan.bind({"order_id": "o1"}, "direct", None)() == "o1"

    @pytest.mark.parametrize("trigger", ["http", None, Http, UnknownTrigger("log"), {"type": "http"}])
    def test_what_is_no_trigger_is_refused(self, worker: Worker, trigger: Any) -> None:
        with pytest.raises(RegistrationError, match=r"'a::b': .* is not a trigger"):
            worker.function("a::b", triggers=[trigger])

    def test_a_condition_is_named_by_its_id(self, worker: Worker) -> None:
        with pytest.raises(RegistrationError, match="must be a function id"):
            worker.function("a::b", triggers=[Queue("q", condition=echo)])  # type: ignore[arg-type]

    def test_nothing_is_registered_if_the_handler_cannot_be_called_with_anything(self, worker: Worker) -> None:
        with pytest.raises(RegistrationError, match="nothing can be passed"):
            worker.function("a::b", triggers=[Queue("q")])(lambda data, other: None)
        assert worker.registry.functions() == []
        assert worker.registry.triggers() == []


class TestRegisterTrigger:
    def test_it_takes_iiis_dict(self, worker: Worker) -> None:
        worker.register_trigger(
            {
                "type": "http",
                "function_id": "a::b",
                "config": {"api_path": "/a", "http_method": "POST"},
                "metadata": {"m": 1},
            }
        )
        (trigger,) = worker.registry.triggers()
        assert (trigger.kind, trigger.function_id, trigger.metadata) == (Http("POST", "/a"), "a::b", {"m": 1})
        assert trigger.type_name == "http"

    def test_the_function_need_not_be_registered(self, worker: Worker) -> None:
        worker.register_trigger({"type": "queue", "function_id": "later::one", "config": {"queue": "q"}})
        assert worker.registry.triggers()[0].function_id == "later::one"

    def test_an_unknown_type_is_kept_without_an_error(self, worker: Worker) -> None:
        worker.register_trigger({"type": "stream:join", "function_id": "a::b"})
        assert worker.registry.triggers()[0].type_name == "stream:join"

    @pytest.mark.parametrize(
        "trigger",
        [
            {},
            {"type": "http"},
            {"function_id": "a::b"},
            {"type": 5, "function_id": "a::b"},
            {"type": "http", "function_id": " "},
            {"type": "http", "function_id": "a::b", "config": "/a"},
            {"type": "http", "function_id": "a::b", "config": {}},
            {"type": "cron", "function_id": "a::b", "config": {"expression": "0 9 * * *"}},
        ],
    )
    def test_a_trigger_that_cannot_work_is_a_value_error(self, worker: Worker, trigger: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="trigger"):
            worker.register_trigger(trigger)
        assert worker.registry.triggers() == []

    def test_what_is_no_dict_is_a_type_error(self, worker: Worker) -> None:
        with pytest.raises(TypeError, match="a trigger must be a dict"):
            worker.register_trigger("http")  # type: ignore[arg-type]

    def test_a_key_without_effect_is_one_warning_that_names_the_function_and_the_key(
        self, worker: Worker, caplog: pytest.LogCaptureFixture
    ) -> None:
        config = {"topic": "t", "queue_config": {"maxRetries": 1, "maxPriority": 9, "delaySeconds": 5}}
        worker.register_trigger({"type": "durable:subscriber", "function_id": "a::b", "config": config})
        assert [(record.name, record.levelname) for record in caplog.records] == [("iii_runtime.registry", "WARNING")]
        assert caplog.records[0].getMessage() == (
            "trigger of 'a::b': no effect here has queue_config.maxPriority, queue_config.delaySeconds"
        )
        assert caplog.records[0].__dict__["iii"] == {
            "function_id": "a::b",
            "keys": ["queue_config.maxPriority", "queue_config.delaySeconds"],
        }
        assert len(worker.registry.triggers()) == 1

    def test_a_refused_trigger_warns_of_nothing(self, worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
        config = {"topic": "", "queue_config": {"maxPriority": 9}}
        with pytest.raises(RegistrationError, match=r"trigger of 'a::b': config key 'topic'"):
            worker.register_trigger({"type": "durable:subscriber", "function_id": "a::b", "config": config})
        assert caplog.records == []

    def test_an_unregistered_trigger_is_gone_and_the_others_stay(self, worker: Worker) -> None:
        first = worker.register_trigger({"type": "state", "function_id": "a::b"})
        worker.register_trigger({"type": "state", "function_id": "a::c"})
        first.unregister()
        first.unregister()
        assert [trigger.function_id for trigger in worker.registry.triggers()] == ["a::c"]


class TestRegistry:
    def test_listeners_hear_of_every_change_until_they_stop(self, worker: Worker) -> None:
        heard: list[int] = []
        stop = worker.registry.on_change(lambda: heard.append(1))
        reference = worker.register_function("a::b", echo)
        trigger = worker.register_trigger({"type": "state", "function_id": "a::b"})
        trigger.unregister()
        reference.unregister()
        assert len(heard) == 4
        stop()
        worker.register_function("a::b", echo)
        assert len(heard) == 4

    def test_a_listener_may_refuse_a_function(self, worker: Worker) -> None:
        def refuse() -> None:
            if worker.registry.functions():
                raise RegistrationError("another worker has it")

        worker.registry.on_change(refuse)
        with pytest.raises(RegistrationError, match="another worker has it"):
            worker.register_function("a::b", echo)
        assert worker.registry.functions() == []

    def test_two_workers_may_not_have_the_same_function(self, worker: Worker) -> None:
        other = register_worker()
        worker.register_function("a::b", echo)
        other.register_function("a::b", echo)
        with pytest.raises(RegistrationError, match=r"'a::b' is registered by two workers: at .* and at "):
            Catalog.of([worker.registry, other.registry])


class TestTrigger:
    def test_a_request_reaches_the_host_parsed(self, worker: Worker) -> None:
        invoker = RecordingInvoker()
        worker.attach(invoker)
        action = TriggerAction.Enqueue(queue="q")
        assert (
            worker.trigger({"function_id": "a::b", "payload": 1, "action": {"type": "enqueue", "queue": "q"}})
            == "answer"
        )
        assert invoker.requests == [TriggerRequest(function_id="a::b", payload=1, action=action)]

    async def test_asynchronous_code_awaits_it(self, worker: Worker) -> None:
        worker.attach(RecordingInvoker())
        assert await worker.trigger_async({"function_id": "a::b"}) == "answer"

    async def test_the_synchronous_form_in_an_event_loop_is_a_runtime_error(self, worker: Worker) -> None:
        invoker = RecordingInvoker()
        worker.attach(invoker)
        with pytest.raises(RuntimeError, match=r"trigger\('a::b'\) would block the event loop: .*trigger_async"):
            worker.trigger({"function_id": "a::b"})
        assert invoker.requests == []

    async def test_a_thread_beside_the_event_loop_may_use_it(self, worker: Worker) -> None:
        worker.attach(RecordingInvoker())
        assert await asyncio.to_thread(worker.trigger, {"function_id": "a::b"}) == "answer"

    def test_a_worker_that_no_host_runs_says_so(self, worker: Worker) -> None:
        with pytest.raises(NotAttachedError, match=r"trigger\('a::b'\) on worker 'orders', which no host runs"):
            worker.trigger({"function_id": "a::b"})
        worker.attach(RecordingInvoker())
        worker.attach(None)
        with pytest.raises(NotAttachedError):
            worker.trigger({"function_id": "a::b"})

    async def test_a_worker_that_no_host_runs_says_so_to_asynchronous_code(self, worker: Worker) -> None:
        with pytest.raises(NotAttachedError):
            await worker.trigger_async({"function_id": "a::b"})

    def test_a_wrong_request_is_refused_before_it_reaches_the_host(self, worker: Worker) -> None:
        with pytest.raises(InvocationError, match="trigger needs a function_id"):
            worker.trigger({"payload": 1})


class TestInvocationError:
    def test_it_is_as_in_the_iii_sdk(self) -> None:
        error = InvocationError("invocation_failed", "boom", "a::b", "stack", "i1")
        assert str(error) == "invocation_failed: boom"
        assert (error.code, error.message, error.function_id, error.stacktrace, error.invocation_id) == (
            "invocation_failed",
            "boom",
            "a::b",
            "stack",
            "i1",
        )
        bare = InvocationError("TIMEOUT", "late")
        assert (bare.function_id, bare.stacktrace, bare.invocation_id) == (None, None, None)


class TestStepTracker:
    @pytest.fixture
    def tracker(self, worker: Worker) -> Iterator[StepTracker]:
        yield StepTracker(worker, scope="orders", stream_name="order-progress")
        worker.attach(None)

    def test_a_step_is_one_request(self, worker: Worker, tracker: StepTracker) -> None:
        invoker = RecordingInvoker()
        worker.attach(invoker)
        tracker.track("o1", "payment", "running", {"amount": 5})
        tracker.track("o1", "payment", "complete", overall="paid")
        assert [request.function_id for request in invoker.requests] == ["iii::track_step"] * 2
        assert invoker.requests[0].payload == {
            "scope": "orders",
            "key": "o1",
            "stream_name": "order-progress",
            "step": "payment",
            "status": "running",
            "detail": {"amount": 5},
            "overall": "running",
        }
        assert invoker.requests[1].payload["overall"] == "paid"

    @pytest.mark.parametrize(
        "error", [InvocationError("UPDATE_ERROR", "disk full"), NotAttachedError("host has stopped")]
    )
    async def test_progress_that_cannot_be_recorded_is_logged_and_fails_no_step(
        self, worker: Worker, tracker: StepTracker, caplog: pytest.LogCaptureFixture, error: Exception
    ) -> None:
        worker.attach(RecordingInvoker(error))
        await asyncio.to_thread(tracker.track, "o1", "payment", "running")
        await tracker.track_async("o1", "payment", "running")
        assert [record.getMessage() for record in caplog.records] == ["step progress was not recorded"] * 2
