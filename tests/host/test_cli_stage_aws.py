"""Commands with `--stage` against the control Lambda as it is deployed, over the services of moto."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from iii_runtime.core.message import Envelope, encode_envelope
from iii_runtime.hosts.aws_lambda import control, function
from tests.contract.aws_services import DEPLOYMENT
from tests.host import lambda_app
from tests.host.commands import answer, done, refused, run
from tests.host.lambda_kit import Context, Stage, running_stage
from tests.host.stage import add_consumer, lambda_service, own_credentials

pytestmark = pytest.mark.usefixtures("own_folder")

WHERE = ("--stage", DEPLOYMENT.stage, "--app", DEPLOYMENT.app, "--region", DEPLOYMENT.region)

LARGEST_ANSWER = 6 * 1024 * 1024
"""What Lambda returns."""


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A stage whose functions run in this process, and whose control Lambda commands reach."""
    own_credentials(monkeypatch)
    with running_stage() as stage:
        for function_id in ("app::mail", "app::hourly"):
            stage.serve(DEPLOYMENT.function_name(function_id), stage.sandbox(function_id), function.handle)
        controlling = stage.sandbox()

        def invoke(name: str, event: Any) -> tuple[int, dict[str, str], Any]:
            assert name == DEPLOYMENT.system_name("control")
            content = json.dumps(control.handle(controlling, event, Context(stage.clock))).encode()
            assert len(content) <= LARGEST_ANSWER
            return 200, {}, content

        lambda_service(monkeypatch, "Invoke", invoke)
        yield stage


def enqueue(do: str = "") -> str:
    """Enqueue a message on `mail` and return its receipt."""
    payload = json.dumps({"do": do})
    receipt: str = answer("trigger", "app::mail", "--queue", "mail", "--payload", payload, *WHERE)["messageReceiptId"]
    return receipt


def consume(stage: Stage) -> None:
    """Let the consumer of `mail` handle what is there, one message at a time."""
    while (event := stage.receive("mail", 1))["Records"]:
        stage.remove(event, function.handle(stage.sandbox("app::mail"), event, Context(stage.clock)))


def move_natively(stage: Stage, receipt: str) -> None:
    """Put a message on the dead-letter queue as SQS does when nobody has said how it went."""
    spec = stage.queues["mail"]
    body = encode_envelope(Envelope(receipt=receipt, function_id="app::mail", queue="mail", accepted_ms=1, payload="7"))
    url = DEPLOYMENT.queue_url(DEPLOYMENT.letter_queue_name(spec))
    stage.services.clients.sqs.send_message(QueueUrl=url, MessageBody=body)


def redrive_on_the_console(stage: Stage) -> None:
    """Move the letters of `mail` back to their queue as they are."""
    sqs, spec = stage.services.clients.sqs, stage.queues["mail"]
    letters, source = (
        DEPLOYMENT.queue_url(name) for name in (DEPLOYMENT.letter_queue_name(spec), DEPLOYMENT.queue_name(spec))
    )
    for message in sqs.receive_message(QueueUrl=letters, MaxNumberOfMessages=10)["Messages"]:
        sqs.send_message(QueueUrl=source, MessageBody=message["Body"])
        sqs.delete_message(QueueUrl=letters, ReceiptHandle=message["ReceiptHandle"])


def row(name: str) -> dict[str, Any]:
    listing = answer("queues", *WHERE)
    return next(queue for queue in listing if queue["name"] == name)


@pytest.mark.usefixtures("stage")
class TestCalls:
    def test_a_function_runs_in_its_own_lambda_and_its_result_is_printed(self) -> None:
        assert answer("trigger", "app::mail", "--payload", '"ü"', *WHERE) == {"did": "ü", "attempt": 1}

    def test_a_function_that_fails_is_exit_code_1_with_its_stack(self) -> None:
        told = refused(1, "trigger", "app::mail", "--payload", '{"do": "fail"}', *WHERE)
        assert told.startswith("error: invocation_failed: no luck\n  function: app::mail\n  Traceback")

    def test_what_is_not_there_is_told_as_on_this_machine(self) -> None:
        assert "error: function_not_found: " in refused(1, "trigger", "app::nothing", *WHERE)
        told = refused(1, "trigger", "app::mail", "--queue", "nothing", *WHERE)
        assert "error: enqueue_error: Queue 'nothing' not found\n  reason: queue_not_found\n" in told

    def test_functions_are_those_that_were_deployed(self) -> None:
        listed = [each["function_id"] for each in answer("functions", *WHERE)["functions"]]
        assert listed == [function.id for function in lambda_app.worker.registry.functions()]
        assert "cron 0 0 * * * * (UTC)" in done("functions", *WHERE)

    def test_state_goes_through_its_life(self) -> None:
        assert answer("state", "set", "s", "k", '{"n": 1}', *WHERE) == {"old_value": None, "new_value": {"n": 1}}
        assert answer("state", "get", "s", "k", *WHERE) == {"n": 1}
        assert answer("state", "list", "s", *WHERE) == [{"n": 1}]
        assert answer("state", "scopes", *WHERE) == {"groups": ["s"]}
        assert answer("state", "delete", "s", "k", *WHERE) == {"n": 1}

    def test_items_and_groups_of_a_stream_are_listed(self) -> None:
        item = '{"stream_name": "s", "group_id": "g", "item_id": "i", "data": {"x": 1}}'
        done("trigger", "stream::set", "--payload", item, *WHERE)
        assert answer("stream", "list", "s", "g", *WHERE) == [{"x": 1}]
        assert answer("stream", "list", "s", *WHERE) == ["g"]

    def test_a_result_larger_than_an_invoke_returns_comes_all_the_same(self) -> None:
        large = ["x" * 100_000] * 25
        for name in ("a", "b"):
            run("state", "set", "s", name, "-", *WHERE, stdin=json.dumps(large))
        assert answer("state", "list", "s", *WHERE) == [large, large]

    def test_cron_jobs_are_listed_and_can_be_run(self, stage: Stage) -> None:
        jobs = {job["expression"]: job["next"] for job in answer("cron", "list", *WHERE)}
        assert jobs["0 0 * * * *"] is not None
        assert answer("cron", "run", "app::hourly", *WHERE)["function_id"] == "app::hourly"
        assert lambda_app.seen[-1]["job_id"] == "app::hourly|0 0 * * * *|UTC"
        assert "error: cron_job_not_found: " in refused(1, "cron", "run", "app::mail", *WHERE)


class TestDeadLetters:
    def test_they_are_listed_shown_redriven_and_discarded(self, stage: Stage) -> None:
        receipts = [enqueue("give up") for _ in range(3)]
        consume(stage)
        assert {letter["id"] for letter in answer("dlq", "list", "mail", *WHERE)} == set(receipts)
        printed = done("dlq", "show", receipts[0], *WHERE)
        for text in (receipts[0], "app::mail", "NonRetryableError: never", "attempt 1: ", '"do": "give up"'):
            assert text in printed
        assert done("dlq", "discard", "mail", receipts[0], *WHERE) == "1 discarded\n"
        assert done("dlq", "redrive", "mail", receipts[1], *WHERE) == "1 redriven\n"
        assert [letter["id"] for letter in answer("dlq", "list", *WHERE)] == [receipts[2]]
        assert "error: dead_letter_not_found: " in refused(1, "dlq", "redrive", "mail", receipts[0], *WHERE)

    def test_a_redriven_letter_starts_at_its_first_attempt_again(self, stage: Stage) -> None:
        receipt = enqueue("give up")
        consume(stage)
        assert done("dlq", "redrive", "mail", "--all", *WHERE) == "1 redriven\n"
        consume(stage)
        letter = answer("dlq", "show", receipt, *WHERE)
        assert (letter["generation"], letter["retries"]) == (1, 1)

    def test_a_redrive_from_the_console_of_aws_is_one_like_any_other(self, stage: Stage) -> None:
        receipt = enqueue("give up")
        consume(stage)
        redrive_on_the_console(stage)
        consume(stage)
        assert "1 failed, 1 received, redriven once" in done("dlq", "show", receipt, *WHERE)
        assert [letter["id"] for letter in answer("dlq", "list", *WHERE)] == [receipt]

    def test_what_sqs_has_moved_by_itself_is_counted_apart_and_listed_once_it_is_adopted(self, stage: Stage) -> None:
        receipt = "5b0f6f6e-3f0c-4f43-9f4e-0d9f8e5a6b01"
        move_natively(stage, receipt)
        listed = row("mail")
        assert (listed["dead"], listed["sqs_visible"], listed["unindexed"], listed["is_exact"]) == (0, 1, 1, False)
        assert " 0 +~1 " in done("queues", *WHERE)
        stats = answer("trigger", "engine::queue::topic_stats", "--payload", '{"queue": "mail"}', *WHERE)
        assert (stats["dlq_depth"], stats["sqs_visible"], stats["unindexed"], stats["is_exact"]) == (0, 1, 1, False)
        controlling = stage.sandbox()
        controlling.run(lambda: controlling.reconciler.reconcile(stage.queues["mail"]), Context(stage.clock))
        (letter,) = answer("dlq", "list", "mail", *WHERE)
        assert (letter["id"], letter["cause"], letter["payload"]) == (receipt, "native", 7)
        assert row("mail")["unindexed"] == 0

    def test_all_of_a_queue_includes_what_sqs_has_moved_by_itself(self, stage: Stage) -> None:
        enqueue("give up")
        consume(stage)
        move_natively(stage, "5b0f6f6e-3f0c-4f43-9f4e-0d9f8e5a6b02")
        assert "--yes" in refused(2, "dlq", "discard", "mail", "--all", *WHERE)
        assert done("dlq", "discard", "mail", "--all", "--yes", *WHERE) == "2 discarded\n"
        assert "no dead letters on queue 'mail' of stage 'test'" in run("dlq", "list", "mail", *WHERE).stderr


class TestQueues:
    def test_the_figures_of_sqs_are_marked(self, stage: Stage) -> None:
        add_consumer(DEPLOYMENT, stage.queues["default"])
        enqueue()
        assert {name: row("mail")[name] for name in ("visible", "is_exact", "state")} == {
            "visible": 1,
            "is_exact": False,
            "state": "no consumer",
        }
        lines = {line.split()[0]: line.split() for line in done("queues", *WHERE).splitlines()}
        assert lines["mail"][-6:] == ["~1", "~0", "~0", "0", "no", "consumer"]
        assert lines["default"][-5:] == ["~0", "~0", "~0", "0", "running"]

    @pytest.mark.usefixtures("stage")
    def test_a_purge_removes_what_waits(self) -> None:
        enqueue()
        assert "--yes" in refused(2, "queues", "purge", "mail", *WHERE)
        assert done("queues", "purge", "mail", "--yes", *WHERE) == "~1 purged\n"
        assert row("mail")["visible"] == 0
