"""Cron on AWS: a tick at the Lambda of its function, the minute tick, and `iii::cron::*` of the command line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from iii_runtime.core.errors import IiiError, StoreError
from iii_runtime.core.remote import RemoteTick, RemoteTrigger, encode_request
from iii_runtime.hosts.aws_lambda import control, function, tick
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.plan.names import TICK_QUEUE
from tests.contract.aws_services import DEPLOYMENT
from tests.host import lambda_app
from tests.host.lambda_kit import Context, Stage, failures, running_stage

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
HOURLY, OFTEN = "app::hourly|0 0 * * * *|UTC", "app::often|*/20 * * * * *|UTC"
RARE = "app::often|5 0 0 13 * FRI|UTC"
UNSTEADY = "app::unsteady|30 * * * * *|UTC"
TICKS = DEPLOYMENT.own_queue_name(TICK_QUEUE)
RULE_EVENT = Path(__file__).resolve().parents[2] / "events" / "schedule" / "minute-tick.json"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with running_stage(NOON) as stage:
        stage.services.clients.sqs.create_queue(QueueName=TICKS)
        yield stage


def fire(stage: Stage, sandbox: Sandbox, job_id: str, time: datetime, context: Context | None = None) -> Any:
    request = encode_request(RemoteTick(job_id=job_id, time=time))
    return function.handle(sandbox, request, context or Context(stage.clock))


def skipped(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__["iii"]["reason"] for record in caplog.records if record.getMessage() == "cron tick skipped"]


def test_a_tick_runs_the_function_with_its_payload_and_a_duplicate_does_not(stage: Stage) -> None:
    sandbox = stage.sandbox("app::hourly")
    stage.clock.advance(timedelta(seconds=2.5))
    assert fire(stage, sandbox, HOURLY, NOON) == {"ok": None}
    assert fire(stage, sandbox, HOURLY, NOON) == {"ok": None}
    assert fire(stage, stage.sandbox("app::hourly"), HOURLY, NOON) == {"ok": None}
    assert lambda_app.seen == [
        {
            "trigger": "cron",
            "job_id": HOURLY,
            "scheduled_time": "2026-05-04T12:00:00Z",
            "actual_time": "2026-05-04T12:00:02.500000Z",
        }
    ]


def test_a_rules_time_within_the_minute_is_the_tick_of_that_minute(stage: Stage) -> None:
    sandbox = stage.sandbox("app::hourly")
    stage.clock.advance(timedelta(seconds=100))
    assert fire(stage, sandbox, HOURLY, NOON + timedelta(seconds=59)) == {"ok": None}
    assert [each["scheduled_time"] for each in lambda_app.seen] == ["2026-05-04T12:00:00Z"]


@pytest.mark.parametrize(("function_id", "job_id", "late_s"), [("app::hourly", HOURLY, 121), ("app::often", OFTEN, 61)])
def test_a_late_tick_is_skipped(
    stage: Stage, caplog: pytest.LogCaptureFixture, function_id: str, job_id: str, late_s: int
) -> None:
    sandbox = stage.sandbox(function_id)
    stage.clock.advance(timedelta(seconds=late_s))
    with caplog.at_level(logging.WARNING, logger="iii_runtime"):
        assert fire(stage, sandbox, job_id, NOON) == {"ok": None}
    assert lambda_app.seen == []
    assert skipped(caplog) == ["late"]
    assert stage.meter.counts == {("SkippedTicks", function_id): 1}


def test_a_job_that_runs_skips_its_ticks_until_its_invocation_must_have_ended(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox, other = stage.sandbox("app::often"), stage.sandbox("app::often")
    answers: list[Any] = []
    later = [timedelta(seconds=20)]

    def next_tick() -> None:
        if later:
            stage.clock.advance(later.pop())
            answers.append(fire(stage, other, OFTEN, NOON + timedelta(seconds=20)))

    lambda_app.meanwhile.append(next_tick)
    with caplog.at_level(logging.WARNING, logger="iii_runtime"):
        assert fire(stage, sandbox, OFTEN, NOON) == {"ok": None}
    assert answers == [{"ok": None}]
    assert len(lambda_app.seen) == 1
    assert skipped(caplog) == ["running"]
    assert stage.meter.counts == {("SkippedTicks", "app::often"): 1}
    stage.clock.advance(timedelta(seconds=20))
    fire(stage, other, OFTEN, NOON + timedelta(seconds=40))
    assert len(lambda_app.seen) == 2


def test_the_lease_of_an_invocation_that_was_killed_ends_when_it_would_have(stage: Stage) -> None:
    sandbox = stage.sandbox("app::often")
    context = Context(stage.clock, timedelta(seconds=30))

    async def die() -> None:
        await sandbox.job_lease.acquire(OFTEN, NOON, lease=timedelta(seconds=30))

    sandbox.run(die, context)
    stage.clock.advance(timedelta(seconds=20))
    fire(stage, sandbox, OFTEN, NOON + timedelta(seconds=20))
    assert lambda_app.seen == []
    stage.clock.advance(timedelta(seconds=20))
    fire(stage, sandbox, OFTEN, NOON + timedelta(seconds=40))
    assert len(lambda_app.seen) == 1


def test_a_job_that_may_overlap_itself_takes_no_lease(stage: Stage) -> None:
    sandbox, other = stage.sandbox("app::often"), stage.sandbox("app::often")
    instant = datetime(2026, 11, 13, 0, 0, 5, tzinfo=UTC)
    stage.clock.advance_to(instant)
    second = [instant + timedelta(days=28)]

    def next_tick() -> None:
        if second:
            fire(stage, other, RARE, second.pop())

    lambda_app.meanwhile.append(next_tick)
    fire(stage, sandbox, RARE, instant)
    assert len(lambda_app.seen) == 2


def test_a_failing_job_is_logged_once_answered_and_gives_its_lease_back(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    sandbox = stage.sandbox("app::unsteady")
    for minute in range(2):
        instant = NOON + timedelta(minutes=minute, seconds=30)
        stage.clock.advance_to(instant)
        with caplog.at_level(logging.ERROR, logger="iii_runtime"):
            answer = fire(stage, sandbox, UNSTEADY, instant)
        assert answer["error"]["type"] == "ValueError"
    assert [record.getMessage() for record in caplog.records] == ["cron tick failed"] * 2
    assert stage.meter.counts == {("FunctionErrors", "app::unsteady"): 2}


def test_a_condition_that_is_not_met_skips_the_function(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = stage.sandbox("app::hourly")
    monkeypatch.setattr("tests.host.lambda_app.str", lambda _value: "no", raising=False)
    assert fire(stage, sandbox, HOURLY, NOON) == {"ok": None}
    assert lambda_app.seen == []


def test_a_tick_of_a_job_that_is_gone_is_answered_with_an_error(stage: Stage) -> None:
    answer = fire(stage, stage.sandbox("app::hourly"), "app::hourly|0 0 9 * * *|UTC", NOON)
    assert answer["error"]["type"] == "CronJobNotFoundError"
    foreign = fire(stage, stage.sandbox("app::hourly"), OFTEN, NOON)
    assert foreign["error"]["type"] == "CronJobNotFoundError"


def test_without_the_table_nothing_runs(stage: Stage) -> None:
    stage.services.clients.dynamodb.delete_table(TableName=DEPLOYMENT.table_name)
    answer = fire(stage, stage.sandbox("app::hourly"), HOURLY, NOON)
    assert "ResourceNotFoundException" in answer["error"]["message"]
    assert lambda_app.seen == []


def rule_event(**changes: Any) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(RULE_EVENT.read_text())
    return {**event, **changes}


def waiting(stage: Stage) -> list[tuple[str, str]]:
    """Return job and time of the ticks on the queue, whatever their delay."""
    from moto.sqs.models import sqs_backends

    queue = sqs_backends[DEPLOYMENT.account][DEPLOYMENT.region].queues[TICKS]
    found = [json.loads(message.body)["iii"] for message in queue._messages]
    return [(each["job"], each["time"]) for each in found]


def watch_delays(stage: Stage) -> list[int]:
    delays: list[int] = []

    def note(params: Any, **_: object) -> None:
        delays.extend(entry["DelaySeconds"] for entry in params["Entries"])

    stage.services.clients.sqs.meta.events.register("provide-client-params.sqs.SendMessageBatch", note)
    return delays


def test_the_minute_tick_sends_the_ticks_of_the_next_minute_ahead_each_delayed_to_its_second(stage: Stage) -> None:
    sandbox = stage.sandbox()
    delays = watch_delays(stage)
    stage.clock.advance(timedelta(seconds=17.25))
    answer = tick.handle(sandbox, rule_event(time="2026-05-04T12:00:00Z"), Context(stage.clock, timedelta(minutes=5)))
    assert answer == {"minute": "2026-05-04T12:01:00+00:00", "ticks": 4}
    assert waiting(stage) == [
        (OFTEN, "2026-05-04T12:01:00+00:00"),
        (OFTEN, "2026-05-04T12:01:20+00:00"),
        (UNSTEADY, "2026-05-04T12:01:30+00:00"),
        (OFTEN, "2026-05-04T12:01:40+00:00"),
    ]
    assert delays == [43, 63, 73, 83]


def test_the_tick_of_a_minute_that_is_over_plans_nothing(stage: Stage) -> None:
    stage.clock.advance(timedelta(minutes=2))
    answer = tick.handle(stage.sandbox(), rule_event(time="2026-05-04T12:00:00Z"), Context(stage.clock))
    assert answer == {"minute": "2026-05-04T12:01:00+00:00", "ticks": 0}
    assert waiting(stage) == []


def test_ticks_that_sqs_refuses_are_sent_again_and_then_told(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = stage.sandbox()
    sqs = stage.services.clients.sqs
    send, refusals = sqs.send_message_batch, [2, 0]

    def refuse(**request: Any) -> Any:
        count = refusals.pop(0) if refusals else 0
        failed = [{"Id": entry["Id"], "Code": "InternalError"} for entry in request["Entries"][:count]]
        rest = request["Entries"][count:]
        sent: Any = send(QueueUrl=request["QueueUrl"], Entries=rest) if rest else {}
        return {"Successful": sent.get("Successful", []), "Failed": failed}

    monkeypatch.setattr(sqs, "send_message_batch", refuse)
    tick.handle(sandbox, rule_event(), Context(stage.clock, timedelta(minutes=5)))
    assert len(waiting(stage)) == 4
    refusals[:] = [4] * 10
    with pytest.raises(StoreError, match="refused 4 of 4 ticks: InternalError"):
        tick.handle(sandbox, rule_event(), Context(stage.clock, timedelta(minutes=5)))


def tick_event(stage: Stage, *bodies: str) -> dict[str, Any]:
    for body in bodies:
        stage.services.clients.sqs.send_message(QueueUrl=DEPLOYMENT.queue_url(TICKS), MessageBody=body)
    return stage.receive_from(TICKS)


def test_a_tick_that_is_due_starts_the_lambda_of_its_function(stage: Stage) -> None:
    sent = encode_request(RemoteTick(job_id=OFTEN, time=NOON))
    event = tick_event(stage, json.dumps(sent))
    assert failures(tick.handle(stage.sandbox(), event, Context(stage.clock))) == []
    assert stage.lambdas.started == [(DEPLOYMENT.function_name("app::often"), sent)]


def test_a_tick_that_cannot_be_started_comes_back_after_5_seconds(stage: Stage) -> None:
    stage.lambdas.refusals = ["AccessDeniedException"]
    bodies = [json.dumps(encode_request(RemoteTick(job_id=job_id, time=NOON))) for job_id in (OFTEN, UNSTEADY)]
    event = tick_event(stage, *bodies)
    changes = stage.watch_visibility()
    left = failures(tick.handle(stage.sandbox(), event, Context(stage.clock)))
    assert left == [event["Records"][0]["messageId"]]
    assert len(stage.lambdas.started) == 1
    assert changes == [(event["Records"][0]["receiptHandle"], 5)]


def test_a_throttled_start_is_tried_again_at_once(stage: Stage) -> None:
    stage.lambdas.refusals = ["TooManyRequestsException"] * 2
    event = tick_event(stage, json.dumps(encode_request(RemoteTick(job_id=OFTEN, time=NOON))))
    assert failures(tick.handle(stage.sandbox(), event, Context(stage.clock))) == []
    assert len(stage.lambdas.started) == 1


@pytest.mark.parametrize("body", ["no json", "[]", '{"iii": {"v": 1, "kind": "trigger", "request": {}}}'])
def test_a_message_that_is_no_tick_is_logged_and_gone(
    stage: Stage, caplog: pytest.LogCaptureFixture, body: str
) -> None:
    with caplog.at_level(logging.ERROR, logger="iii_runtime"):
        assert failures(tick.handle(stage.sandbox(), tick_event(stage, body), Context(stage.clock))) == []
    assert [record.getMessage() for record in caplog.records] == ["cron tick unreadable"]


def test_a_tick_of_a_trigger_that_has_changed_is_skipped(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    event = tick_event(stage, json.dumps(encode_request(RemoteTick(job_id="gone|1 * * * * *|UTC", time=NOON))))
    with caplog.at_level(logging.WARNING, logger="iii_runtime"):
        assert failures(tick.handle(stage.sandbox(), event, Context(stage.clock))) == []
    assert skipped(caplog) == ["its trigger has changed"]


@pytest.mark.parametrize("event", [None, {}, {"Records": []}, {"source": "aws.events", "detail-type": "Other"}])
def test_the_minute_tick_refuses_other_events(stage: Stage, event: Any) -> None:
    with pytest.raises(IiiError) as caught:
        tick.handle(stage.sandbox(), event, Context(stage.clock))
    assert caught.value.code == "event_unknown"


def test_the_minute_tick_consumes_no_other_queue(stage: Stage) -> None:
    stage.put("mail", 1, "app::mail")
    with pytest.raises(IiiError, match="consumes its own queue"):
        tick.handle(stage.sandbox(), stage.receive("mail"), Context(stage.clock))


def test_a_message_that_sqs_moved_by_itself_is_adopted_in_the_second_minute(stage: Stage) -> None:
    sandbox = stage.sandbox()
    receipt = stage.put("mail", {"n": 1}, "app::mail")
    (record,) = stage.receive("mail")["Records"]
    letters = DEPLOYMENT.queue_url(DEPLOYMENT.letter_queue_name(stage.queues["mail"]))
    stage.services.clients.sqs.send_message(QueueUrl=letters, MessageBody=record["body"])
    for _ in range(2):
        tick.handle(sandbox, rule_event(), Context(stage.clock, timedelta(minutes=5)))

    async def read() -> list[tuple[str, str]]:
        found = await sandbox.runtime.stores.letters.list_letters("mail", 0, 10)
        return [(letter.receipt, letter.cause) for letter in found]

    assert sandbox.run(read, Context(stage.clock)) == [(receipt, "native")]


def test_dead_letter_queues_that_cannot_be_looked_at_do_not_fail_the_tick(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.services.clients.dynamodb.delete_table(TableName=DEPLOYMENT.table_name)
    with caplog.at_level(logging.ERROR, logger="iii_runtime"):
        answer = tick.handle(stage.sandbox(), rule_event(), Context(stage.clock, timedelta(minutes=5)))
    assert answer == {"minute": "2026-05-04T12:01:00+00:00", "ticks": 4}
    assert {record.getMessage() for record in caplog.records} == {"dead letters not reconciled"}
    assert len(caplog.records) == len(stage.queues)


def test_with_little_time_left_the_tidying_waits_for_the_next_minute(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="iii_runtime"):
        tick.handle(stage.sandbox(), rule_event(), Context(stage.clock, timedelta(seconds=20)))
    assert [record.getMessage() for record in caplog.records] == ["no time left for all dead-letter queues"]


def ask(stage: Stage, sandbox: Sandbox, function_id: str, payload: Any = None) -> Any:
    request = encode_request(RemoteTrigger(request={"function_id": function_id, "payload": payload}))
    return control.handle(sandbox, request, Context(stage.clock, timedelta(minutes=15)))


def test_the_command_line_lists_the_jobs_with_their_next_tick(stage: Stage) -> None:
    listed = ask(stage, stage.sandbox(), "iii::cron::list")["ok"]
    assert {(each["function_id"], each["expression"]): each["next"] for each in listed} == {
        ("app::hourly", "0 0 * * * *"): "2026-05-04T13:00:00+00:00",
        ("app::often", "*/20 * * * * *"): "2026-05-04T12:00:20+00:00",
        ("app::often", "5 0 0 13 * FRI"): "2026-11-13T00:00:05+00:00",
        ("app::unsteady", "30 * * * * *"): "2026-05-04T12:00:30+00:00",
    }


def test_the_command_line_runs_a_job_now_in_the_lambda_of_its_function(stage: Stage) -> None:
    sandbox = stage.sandbox()
    for name in ("app::hourly", "app::unsteady"):
        stage.serve(DEPLOYMENT.function_name(name), stage.sandbox(name), function.handle)
    stage.clock.advance(timedelta(seconds=5))
    answer = ask(stage, sandbox, "iii::cron::run", {"function_id": "app::hourly"})
    assert answer == {"ok": {"function_id": "app::hourly", "scheduled_time": "2026-05-04T12:00:05+00:00"}}
    assert [each["job_id"] for each in lambda_app.seen] == [HOURLY]
    failed = ask(stage, sandbox, "iii::cron::run", {"function_id": "app::unsteady"})["error"]
    assert (failed["code"], failed["function_id"]) == ("invocation_failed", "app::unsteady")
    missing = ask(stage, sandbox, "iii::cron::run", {"function_id": "app::mail"})["error"]
    assert missing["code"] == "cron_job_not_found"


def test_a_job_that_runs_is_not_run_now(stage: Stage) -> None:
    sandbox = stage.sandbox()

    async def hold() -> None:
        await sandbox.job_lease.acquire(HOURLY, NOON, lease=timedelta(seconds=45))

    sandbox.run(hold, Context(stage.clock))
    stage.clock.advance(timedelta(seconds=5))
    answer = ask(stage, sandbox, "iii::cron::run", {"function_id": "app::hourly"})
    assert answer["error"]["code"] == "cron_busy"


def test_a_job_that_has_just_run_can_be_run_now_in_the_same_moment(stage: Stage) -> None:
    own = stage.sandbox("app::hourly")
    stage.serve(DEPLOYMENT.function_name("app::hourly"), own, function.handle)
    fire(stage, own, HOURLY, NOON)
    for _ in range(2):
        answer = ask(stage, stage.sandbox(), "iii::cron::run", {"function_id": "app::hourly"})
        assert answer["ok"]["scheduled_time"] == "2026-05-04T12:00:00+00:00"
    assert len(lambda_app.seen) == 3


def test_a_job_that_was_run_now_fires_its_next_tick_as_ever(stage: Stage) -> None:
    own = stage.sandbox("app::hourly")
    stage.serve(DEPLOYMENT.function_name("app::hourly"), own, function.handle)
    ask(stage, stage.sandbox(), "iii::cron::run", {"function_id": "app::hourly"})
    stage.clock.advance(timedelta(hours=1))
    fire(stage, own, HOURLY, NOON + timedelta(hours=1))
    assert len(lambda_app.seen) == 2
