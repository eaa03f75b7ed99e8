"""The Lambda of the change feed: what its sandbox opens, and what an event does in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeAlias

import pytest

from iii_runtime import Worker
from iii_runtime.core.config import Config
from iii_runtime.core.errors import HostError
from iii_runtime.hosts.aws_lambda import feed as feed_host
from iii_runtime.hosts.aws_lambda.environment import Environment
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.plan.manifest import Manifest, describe_app, read_manifest
from iii_runtime.plan.names import FEED_FAILURES
from iii_runtime.testing.clock import SequenceIds
from tests.contract.aws_services import DEPLOYMENT
from tests.host.feed_stage import Stage, places, running_feed, triggered
from tests.host.lambda_kit import Context, FakeLambda

ENDPOINT = "https://a1b2c3d4e5.execute-api.us-east-1.amazonaws.com/live"

Sandboxed: TypeAlias = tuple[Stage, Sandbox, FakeLambda]


@pytest.fixture
def sandboxed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandboxed]:
    """The feed as its Lambda opens it, with functions in Lambdas of their own and moto's WebSocket API."""
    monkeypatch.setenv("III_WEBSOCKET_URL", ENDPOINT)
    lambdas = FakeLambda()
    with running_feed(monkeypatch) as here:
        clients = here.services.clients
        clients.__dict__["invoking"] = lambda _timeout: lambdas
        clients.sns.create_topic(Name=DEPLOYMENT.progress_topic_arn.rpartition(":")[2])
        sandbox = Sandbox(
            Environment(deployment=DEPLOYMENT),
            runtime_manifest(triggered()),
            clients=clients,
            clock=here.clock,
            ids=SequenceIds(),
            meter=here.meter,
        )
        yield here, sandbox, lambdas
        sandbox.close()
        feed_host.open_feed.cache_clear()


def runtime_manifest(worker: Worker) -> Manifest:
    return read_manifest(json.loads(json.dumps(describe_app(Config(), [worker], ["app"]))))


def recorder(calls: list[Any]) -> Callable[[Any], Any]:
    def invoked(event: Any) -> Any:
        calls.append(event["iii"]["call"]["p"])
        return {"ok": None}

    return invoked


async def test_the_lambda_invokes_the_functions_of_triggers_in_order(sandboxed: Sandboxed) -> None:
    here, sandbox, lambdas = sandboxed
    calls: list[Any] = []
    for function_id in ("f::state", "f::stream"):
        lambdas.functions[DEPLOYMENT.function_name(function_id)] = recorder(calls)
    await here.join("c", "g1")
    for number in range(3):
        await here.set(number)
    await here.state.set("orders", "o1", "done")
    event = here.batch()
    response = feed_host._handle(sandbox, event, Context(here.clock, timedelta(seconds=900)))
    assert response == {"batchItemFailures": []}
    streamed = [call["event"]["data"] for call in calls if call["type"] == "stream"]
    assert (streamed, len(calls)) == ([0, 1, 2], 4)


async def test_the_lambda_reports_a_batch_that_it_could_not_finish_and_goes_on_where_it_stopped(
    sandboxed: Sandboxed,
) -> None:
    here, sandbox, lambdas = sandboxed
    calls: list[Any] = []
    lambdas.functions[DEPLOYMENT.function_name("f::stream")] = recorder(calls)
    for number in range(2):
        await here.set(number)
    event = here.batch()
    lambdas.refusals = ["TooManyRequestsException"] * 6
    context = Context(here.clock, timedelta(seconds=900))
    assert places(event, feed_host._handle(sandbox, event, context)) == [0]
    assert places(event, feed_host._handle(sandbox, event, context)) == []
    assert [call["event"]["data"] for call in calls] == [0, 1]
    published = here.services.calls.count("sns:PublishBatch")
    assert published == 1


async def test_the_lambda_names_what_it_cannot_read_on_the_queue_of_failures_without_its_value(
    sandboxed: Sandboxed,
) -> None:
    here, sandbox, _ = sandboxed
    failures = DEPLOYMENT.own_queue_name(FEED_FAILURES)
    here.services.clients.sqs.create_queue(QueueName=failures)
    await here.state.set("private", "p1", "secret")
    event = here.batch()
    (record,) = event["Records"]
    record["dynamodb"]["NewImage"]["v"] = {"S": "secret, and no JSON"}
    response = feed_host._handle(sandbox, event, Context(here.clock, timedelta(seconds=900)))
    assert response == {"batchItemFailures": []}
    (message,) = here.services.clients.sqs.receive_message(QueueUrl=DEPLOYMENT.queue_url(failures))["Messages"]
    assert "secret" not in message["Body"]
    reference = json.loads(message["Body"])
    assert (reference["sequence_number"], reference["keys"], reference["code"]) == (
        record["dynamodb"]["SequenceNumber"],
        record["dynamodb"]["Keys"],
        "store_corrupt",
    )


async def test_a_lambda_without_the_address_of_the_connections_says_so(
    sandboxed: Sandboxed, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, sandbox, _ = sandboxed
    monkeypatch.setenv("III_WEBSOCKET_URL", "wss://a1b2c3d4e5.example/live")
    with pytest.raises(HostError, match="III_WEBSOCKET_URL") as raised:
        feed_host._handle(sandbox, {"Records": []}, Context(here.clock))
    assert raised.value.code == "environment_invalid"
