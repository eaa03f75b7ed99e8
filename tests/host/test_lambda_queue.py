"""Queue messages at the Lambda entry points: what is done, what is reported, and what a crash leaves."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from iii_runtime.core.errors import HostError
from iii_runtime.core.message import TOPIC_FUNCTION
from iii_runtime.core.payload import Json
from iii_runtime.core.remote import RemoteCall, decode_request
from iii_runtime.hosts.aws_lambda import dispatcher, function
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.unknown_event import EventUnknownError
from iii_runtime.plan.app import plan_app
from iii_runtime.plan.app_plan import AppPlan
from iii_runtime.plan.names import Deployment
from iii_runtime.ports.dead_letter import DeadLetter
from tests.contract.aws_services import DEPLOYMENT
from tests.host import lambda_app
from tests.host.lambda_kit import Context, Stage, again, failures, running_stage

FAIL: Json = {"do": "fail"}
GIVE_UP: Json = {"do": "give up"}
HANG: Json = {"do": "hang"}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with running_stage() as stage:
        yield stage


def letters(sandbox: Sandbox, queue: str, context: Context) -> list[DeadLetter]:
    async def read() -> list[DeadLetter]:
        return await sandbox.runtime.stores.letters.list_letters(queue, 0, 10)

    return sandbox.run(read, context)


def test_a_message_that_succeeds_is_done_without_any_call_of_aws(stage: Stage) -> None:
    sandbox = stage.sandbox("app::mail")
    stage.put("mail", {"n": 1}, "app::mail")
    event = stage.receive("mail")
    stage.services.calls.clear()
    assert failures(function.handle(sandbox, event, Context(stage.clock))) == []
    assert lambda_app.seen == [{"n": 1}]
    assert stage.services.calls == []
    assert stage.meter.counts == {}


def test_a_failed_attempt_is_recorded_then_hidden_for_its_back_off_then_reported(stage: Stage) -> None:
    sandbox = stage.sandbox("app::mail")
    stage.put("mail", FAIL, "app::mail")
    event = stage.receive("mail")
    changes = stage.watch_visibility()
    stage.services.calls.clear()
    (record,) = event["Records"]
    assert failures(function.handle(sandbox, event, Context(stage.clock))) == [record["messageId"]]
    assert stage.services.calls == ["dynamodb:UpdateItem", "sqs:ChangeMessageVisibility"]
    assert changes == [(record["receiptHandle"], 5)]
    assert stage.meter.counts == {("FunctionErrors", "app::mail"): 1, ("FailedAttempts", "mail"): 1}


def test_the_last_failure_makes_a_dead_letter_and_the_message_is_done(stage: Stage) -> None:
    sandbox = stage.sandbox("app::mail")
    receipt = stage.put("mail", FAIL, "app::mail")
    event = stage.receive("mail")
    assert len(failures(function.handle(sandbox, event, Context(stage.clock)))) == 1
    stage.clock.advance(timedelta(seconds=10))
    assert failures(function.handle(sandbox, again(event), Context(stage.clock))) == []
    assert lambda_app.seen == [FAIL, FAIL]
    (letter,) = letters(sandbox, "mail", Context(stage.clock))
    assert (letter.receipt, letter.cause) == (receipt, "failed")
    assert stage.meter.counts["DeadLetters", "mail"] == 1


@pytest.mark.parametrize(("payload", "cause"), [(GIVE_UP, "failed"), (None, "unreadable")])
def test_what_no_attempt_can_help_is_a_dead_letter_at_once(stage: Stage, payload: Any, cause: str) -> None:
    sandbox = stage.sandbox("app::mail")
    if payload is None:
        stage.send("mail", "no envelope")
    else:
        stage.put("mail", payload, "app::mail")
    assert failures(function.handle(sandbox, stage.receive("mail"), Context(stage.clock))) == []
    (letter,) = letters(sandbox, "mail", Context(stage.clock))
    assert letter.cause == cause


def test_a_time_out_is_recorded_before_lambda_ends_the_invocation(stage: Stage) -> None:
    sandbox = stage.sandbox("app::mail")
    stage.put("mail", HANG, "app::mail")
    event = stage.receive("mail")
    changes = stage.watch_visibility()
    context = Context(stage.clock, timedelta(seconds=2.1))
    assert len(failures(function.handle(sandbox, event, context))) == 1
    assert [seconds for _, seconds in changes] == [5]
    stage.clock.advance(timedelta(seconds=10))
    assert failures(function.handle(sandbox, again(event), Context(stage.clock, timedelta(seconds=2.1)))) == []
    (letter,) = letters(sandbox, "mail", Context(stage.clock))
    assert letter.error.type == "TIMEOUT"


def test_a_batch_is_worked_off_in_order_and_one_failure_leaves_the_others_done(stage: Stage) -> None:
    sandbox = stage.sandbox("app::batch")
    payloads: list[Any] = [{"n": 1}, FAIL, {"n": 3}]
    for payload in payloads:
        stage.put("batch", payload, "app::batch")
    event = stage.receive("batch")
    failing = [record["messageId"] for record in event["Records"] if "fail" in record["body"]]
    assert failures(function.handle(sandbox, event, Context(stage.clock))) == failing
    assert len(lambda_app.seen) == 3


def test_a_message_is_only_started_if_its_function_can_have_its_whole_time(stage: Stage) -> None:
    sandbox = stage.sandbox("app::batch")
    for number in range(3):
        stage.put("batch", {"n": number}, "app::batch")
    event = stage.receive("batch")
    changes = stage.watch_visibility()
    lambda_app.meanwhile.append(lambda: stage.clock.advance(timedelta(seconds=10)))
    first, second, third = event["Records"]
    # 35 s less 2 for the outcome: after 10 s of the first message 23 are left for the 20 of the second, then 13.
    assert failures(function.handle(sandbox, event, Context(stage.clock))) == [third["messageId"]]
    assert len(lambda_app.seen) == 2
    assert changes == [(third["receiptHandle"], 0)]
    assert stage.meter.counts == {}
    assert first["messageId"] != second["messageId"]


def test_the_first_message_is_started_however_little_time_is_left(stage: Stage) -> None:
    sandbox = stage.sandbox("app::batch")
    stage.put("batch", {"n": 1}, "app::batch")
    assert failures(function.handle(sandbox, stage.receive("batch"), Context(stage.clock, timedelta(seconds=5)))) == []


def ordered_event(stage: Stage, *messages: tuple[str, str]) -> dict[str, Any]:
    """Return an event with messages of some groups, as SQS hands out several of one group at once."""
    records: list[Any] = []
    for group, what in messages:
        stage.put("ordered", {"group": group, "do": what}, "app::ordered")
        (record,) = stage.receive("ordered", 1)["Records"]
        records.append(record)
        stage.remove({"Records": [record]}, {"batchItemFailures": []})
    return {"Records": records}


def test_what_follows_a_failed_message_of_its_group_is_returned_untouched_and_other_groups_go_on(stage: Stage) -> None:
    sandbox = stage.sandbox("app::ordered")
    event = ordered_event(stage, ("a", "fail"), ("b", "ok"), ("a", "ok"), ("b", "ok"), ("a", "ok"))
    changes = stage.watch_visibility()
    head, _, second, _, third = event["Records"]
    left = failures(function.handle(sandbox, event, Context(stage.clock)))
    assert left == [head["messageId"], second["messageId"], third["messageId"]]
    assert [(each["group"], each["do"]) for each in lambda_app.seen] == [("a", "fail"), ("b", "ok"), ("b", "ok")]
    assert changes == [(head["receiptHandle"], 4), (second["receiptHandle"], 0), (third["receiptHandle"], 0)]


def test_a_head_that_died_counts_as_done_and_the_group_goes_on(stage: Stage) -> None:
    sandbox = stage.sandbox("app::ordered")
    event = ordered_event(stage, ("a", "give up"), ("a", "ok"))
    assert failures(function.handle(sandbox, event, Context(stage.clock))) == []
    assert [each["do"] for each in lambda_app.seen] == ["give up", "ok"]


def test_with_no_time_left_a_group_is_returned_from_there_on(stage: Stage) -> None:
    sandbox = stage.sandbox("app::ordered")
    event = ordered_event(stage, ("a", "ok"), ("a", "ok"), ("b", "ok"))
    lambda_app.meanwhile.append(lambda: stage.clock.advance(timedelta(seconds=14)))
    left = failures(function.handle(sandbox, event, Context(stage.clock)))
    assert left == [record["messageId"] for record in event["Records"][1:]]
    assert len(lambda_app.seen) == 1


def test_messages_of_a_queue_that_is_not_the_apps_are_left_in_it(stage: Stage) -> None:
    sandbox = stage.sandbox("app::mail")
    stage.put("mail", {"n": 1}, "app::mail")
    event = stage.receive("mail")
    other = Deployment(app="shop", stage="other", region=DEPLOYMENT.region, account=DEPLOYMENT.account)
    event["Records"][0]["eventSourceARN"] = other.queue_arn("shop-other-q-mail")
    with pytest.raises(HostError, match="'shop-other-q-mail' belongs to no queue of this app") as caught:
        function.handle(sandbox, event, Context(stage.clock))
    assert caught.value.code == "queue_unknown"
    assert lambda_app.seen == []


@pytest.mark.parametrize("missing", ["messageId", "receiptHandle", "body", "attributes", "eventSourceARN"])
def test_a_record_that_cannot_be_read_is_an_error_and_nothing_is_done(stage: Stage, missing: str) -> None:
    sandbox = stage.sandbox("app::mail")
    stage.put("mail", {"n": 1}, "app::mail")
    event = stage.receive("mail")
    del event["Records"][0][missing]
    with pytest.raises(EventUnknownError, match="cannot be read"):
        function.handle(sandbox, event, Context(stage.clock))
    assert lambda_app.seen == []


@pytest.mark.parametrize("value", ["secret", "1.5", "-1", "", "9" * 400, "9" * 5000, None, 7])
@pytest.mark.parametrize("name", ["SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp"])
def test_a_number_of_sqs_that_is_none_is_an_error_that_names_it_and_does_not_quote_it(
    stage: Stage, name: str, value: object
) -> None:
    sandbox = stage.sandbox("app::mail")
    stage.put("mail", {"n": 1}, "app::mail")
    event = stage.receive("mail")
    event["Records"][0]["attributes"][name] = value
    with pytest.raises(EventUnknownError, match=f"cannot be read: member '{name}' is not a") as caught:
        function.handle(sandbox, event, Context(stage.clock))
    assert "secret" not in caught.value.message
    assert lambda_app.seen == []


def test_a_missing_table_leaves_the_message_and_says_so(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    sandbox = stage.sandbox("app::mail")
    stage.put("mail", {"n": 1}, "app::mail")
    event = again(stage.receive("mail"))
    stage.services.clients.dynamodb.delete_table(TableName=DEPLOYMENT.table_name)
    with caplog.at_level(logging.ERROR, logger="iii_runtime"):
        assert len(failures(function.handle(sandbox, event, Context(stage.clock)))) == 1
    (line,) = [record.__dict__["iii"] for record in caplog.records]
    assert line["code"] == "store_missing"
    assert lambda_app.seen == []


def test_credentials_that_expire_while_the_function_runs_leave_the_message(stage: Stage) -> None:
    sandbox = stage.sandbox("app::mail")
    stage.put("mail", FAIL, "app::mail")
    event = stage.receive("mail")

    def refuse(**_: object) -> None:
        error: Any = {"Error": {"Code": "ExpiredTokenException", "Message": "expired"}}
        raise ClientError(error, "UpdateItem")

    stage.services.clients.dynamodb.meta.events.register("before-call.dynamodb.*", refuse)
    assert len(failures(function.handle(sandbox, event, Context(stage.clock)))) == 1
    assert stage.meter.counts["FailedAttempts", "mail"] == 1


class KilledError(BaseException):
    """The sandbox is killed at this moment."""


def kill_at(stage: Stage, number: int) -> Callable[[], bool]:
    """Kill the sandbox at the `number`-th call of AWS from now; returns whether it came to that."""
    calls = 0

    def count(**_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise KilledError

    clients = stage.services.clients
    for client in (clients.dynamodb, clients.sqs, clients.s3):
        client.meta.events.register("before-call", count, unique_id="kill")

    def stop() -> bool:
        for client in (clients.dynamodb, clients.sqs, clients.s3):
            client.meta.events.unregister("before-call", unique_id="kill")
        return calls >= number

    return stop


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("payload", [FAIL, GIVE_UP])
def test_a_sandbox_that_is_killed_at_any_call_of_aws_loses_no_message(stage: Stage, payload: Any, number: int) -> None:
    receipt = stage.put("mail", payload, "app::mail")
    event = stage.receive("mail")
    receives, is_done = 0, False
    stop = kill_at(stage, number)
    while not is_done:
        receives += 1
        assert receives < 8
        sandbox = stage.sandbox("app::mail")
        try:
            response = function.handle(sandbox, again(event, receives), Context(stage.clock))
        except KilledError:
            stop()
        else:
            is_done = failures(response) == []
        stage.clock.advance(timedelta(minutes=1))
    was_killed = stop()
    (letter,) = letters(stage.sandbox(), "mail", Context(stage.clock))
    assert letter.receipt == receipt
    attempts = len(lambda_app.seen)
    needed = 2 if payload is FAIL else 1
    assert needed <= attempts <= needed + was_killed
    on_queue = stage.receive_from(DEPLOYMENT.letter_queue_name(stage.queues["mail"]))
    assert len(on_queue["Records"]) in ({1, 2} if was_killed else {1})


def test_a_message_of_a_topic_runs_the_subscriber_under_a_receipt_of_its_own(stage: Stage) -> None:
    sandbox = stage.sandbox("app::subscriber")
    queue = "topic/news/app::subscriber"
    for wanted in (True, False):
        stage.put(queue, {"wanted": wanted}, TOPIC_FUNCTION)
        assert failures(function.handle(sandbox, stage.receive(queue, 1), Context(stage.clock))) == []
    assert lambda_app.seen == [{"wanted": True}]


def test_a_foreign_message_at_a_bound_consumer_runs_through_the_dispatcher(stage: Stage) -> None:
    consumer, target = stage.sandbox("app::mail"), stage.sandbox("app::asynchronous")
    stage.serve(DEPLOYMENT.function_name("app::asynchronous"), target, function.handle)
    stage.serve(DEPLOYMENT.system_name("dispatcher"), stage.sandbox(), dispatcher.handle)
    receipt = stage.put("mail", {"n": 1}, "app::asynchronous")
    assert failures(function.handle(consumer, stage.receive("mail"), Context(stage.clock))) == []
    assert lambda_app.seen == [{"n": 1}]
    stage.put("mail", FAIL, "app::asynchronous")
    assert len(failures(function.handle(consumer, stage.receive("mail"), Context(stage.clock)))) == 1
    assert stage.meter.counts == {("FunctionErrors", "app::asynchronous"): 1, ("FailedAttempts", "mail"): 1}
    assert receipt


def test_a_message_of_a_shared_queue_runs_in_the_lambda_of_its_function(stage: Stage) -> None:
    sandbox, target = stage.sandbox(), stage.sandbox("app::mail")
    stage.serve(DEPLOYMENT.function_name("app::mail"), target, function.handle)
    stage.put("shared", {"n": 1}, "app::mail")
    assert failures(dispatcher.handle(sandbox, stage.receive("shared"), Context(stage.clock))) == []
    assert lambda_app.seen == [{"n": 1}]


def test_a_throttled_target_is_no_attempt(stage: Stage) -> None:
    sandbox, target = stage.sandbox(), stage.sandbox("app::mail")
    stage.serve(DEPLOYMENT.function_name("app::mail"), target, function.handle)
    stage.put("shared", {"n": 1}, "app::mail")
    event = stage.receive("shared")
    changes = stage.watch_visibility()
    stage.lambdas.refusals = ["TooManyRequestsException"]
    stage.services.calls.clear()
    assert len(failures(dispatcher.handle(sandbox, event, Context(stage.clock)))) == 1
    assert [seconds for _, seconds in changes] == [5]
    assert stage.services.calls == ["sqs:ChangeMessageVisibility"]
    assert stage.meter.counts == {("FunctionBusy", "shared"): 1}
    assert failures(dispatcher.handle(sandbox, again(event), Context(stage.clock))) == []
    assert lambda_app.seen == [{"n": 1}]


def test_a_target_that_is_not_deployed_is_a_failed_attempt(stage: Stage) -> None:
    sandbox = stage.sandbox()
    stage.put("shared", {"n": 1}, "app::mail")
    assert len(failures(dispatcher.handle(sandbox, stage.receive("shared"), Context(stage.clock)))) == 1
    assert stage.meter.counts == {("FailedAttempts", "shared"): 1}


def test_a_void_call_of_a_handler_is_sent_before_its_message_is_done(stage: Stage) -> None:
    sandbox = stage.sandbox("app::void")
    stage.put("shared", {"n": 7}, "app::void")
    stage.serve(DEPLOYMENT.function_name("app::void"), sandbox, function.handle)
    assert failures(dispatcher.handle(stage.sandbox(), stage.receive("shared"), Context(stage.clock))) == []
    ((name, sent),) = stage.lambdas.started
    assert name == DEPLOYMENT.function_name("app::mail")
    request = decode_request(sent)
    assert isinstance(request, RemoteCall)
    assert (request.call.function_id, request.call.payload, request.call.hops) == ("app::mail", {"n": 7}, 1)


@pytest.mark.parametrize("event", [{}, {"Records": []}, {"Records": [{"eventSource": "aws:s3"}]}, None, {"iii": {}}])
def test_the_dispatcher_refuses_other_events(stage: Stage, event: Any) -> None:
    with pytest.raises(Exception, match=r"nothing else|cannot be read") as caught:
        dispatcher.handle(stage.sandbox(), event, Context(stage.clock))
    assert caught.value.code in {"event_unknown", "request_unreadable"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(3))
def test_no_message_of_a_slow_batch_dies_without_a_run(stage: Stage, seed: int) -> None:
    order, plan = random.Random(seed), planned_stage(stage)
    timeout = plan.functions[DEPLOYMENT.function_name("app::batch")].timeout
    sandbox = stage.sandbox("app::batch")
    for number in range(10):
        stage.put("batch", {"n": number}, "app::batch")
    lambda_app.meanwhile.append(lambda: stage.clock.advance(timedelta(seconds=19)))
    while records := stage.receive("batch")["Records"]:
        order.shuffle(records)  # a standard queue has no order
        event = {"Records": records}
        stage.remove(event, function.handle(sandbox, event, Context(stage.clock, timeout)))
    assert len(lambda_app.seen) == 10
    assert stage.meter.counts == {}


def test_a_foreign_message_outlives_many_minutes_of_throttling(stage: Stage) -> None:
    sandbox = stage.sandbox("app::mail")
    stage.put("mail", {"n": 1}, "app::batch")
    event = stage.receive("mail")
    changes = stage.watch_visibility()
    for receives in range(1, 32):
        stage.lambdas.refusals.append("TooManyRequestsException")
        left = failures(function.handle(sandbox, again(event, receives), Context(stage.clock)))
        assert left == [event["Records"][0]["messageId"]]
    assert sum(seconds for _, seconds in changes) > 25 * 60
    assert ("DeadLetters", "mail") not in stage.meter.counts
    assert failures(function.handle(sandbox, again(event, 32), Context(stage.clock))) == []
    assert stage.meter.counts["DeadLetters", "mail"] == 1


def test_a_message_of_the_consumer_itself_that_kills_it_is_found_out_after_a_few_receives(stage: Stage) -> None:
    sandbox = stage.sandbox("app::mail")
    stage.put("mail", {"n": 1}, "app::mail")
    event = stage.receive("mail")
    assert failures(function.handle(sandbox, again(event, 5), Context(stage.clock))) == []
    assert lambda_app.seen == []
    assert stage.meter.counts == {("DeadLetters", "mail"): 1}


def planned_stage(stage: Stage) -> AppPlan:
    """Return the plan of the app in its stage."""
    return plan_app(stage.app, DEPLOYMENT)
