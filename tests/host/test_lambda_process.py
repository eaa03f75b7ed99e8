"""The real entry point in a process of its own, as Lambda runs it: main thread, signals, environment, bundle, log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.worker import collecting_workers
from iii_runtime.hosts.aws_lambda.executor import EXIT_CODE
from iii_runtime.plan.manifest import MANIFEST_NAME, describe_app

ROOT = Path(__file__).resolve().parents[2]

CODE = """
import asyncio, signal, threading, time
from datetime import timedelta
from iii_runtime import ApiResponse, Http, Logger, Queue, current_invocation, register_worker

print("imported")
worker = register_worker(worker_name="bundled")

@worker.function("shop::slow", timeout=timedelta(seconds=60))
def slow(data):
    return data

@worker.function("shop::work", triggers=[Queue("jobs"), Http("POST", "/work")], timeout=timedelta(seconds=1))
def work(data):
    job = data["body"] if "body" in data else data
    if job.get("endless"):
        while True:
            time.sleep(0.01)
    if job.get("calls"):
        return worker.trigger({"function_id": "shop::slow", "payload": {}})
    Logger().info("working", {"job": job})
    is_main = threading.current_thread() is threading.main_thread()
    return {"status_code": 200, "body": {"main": is_main, "did": job}}

trigger = [Queue("calls", batch_size=10), Http("POST", "/call")]

@worker.function("shop::call", triggers=trigger, timeout=timedelta(seconds=1))
async def call(data):
    job = data["body"] if "body" in data else data
    if job.get("deaf"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    if job.get("hung"):
        time.sleep(60)
    if job.get("calls"):
        return await worker.trigger_async({"function_id": "shop::slow", "payload": {}})
    while job.get("stays"):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
    Logger().info("working", {"job": job})
    return {"status_code": 200, "body": {"did": job}}
"""

LAMBDA = """
import json, sys
from moto import mock_aws
from tests.contract.aws_services import create_bucket, create_table
from iii_runtime.hosts.aws_lambda.environment import read_environment
from iii_runtime.adapters.aws.clients import Clients
import os

class Context:
    aws_request_id = "r-1"
    def get_remaining_time_in_millis(self):
        return 16_000

def http(body):
    path = os.environ["III_FUNCTION"].replace("shop::", "/")
    return {"version": "2.0", "rawPath": path, "headers": {"content-type": "application/json"},
            "requestContext": {"http": {"method": "POST"}}, "body": json.dumps(body)}

def call(payload):
    return {"iii": {"v": 1, "kind": "call", "call": {
        "fn": os.environ["III_FUNCTION"], "src": "direct", "att": 1, "hops": 0, "depth": 0, "p": payload}}}

def show(answer):
    print("ANSWER", json.dumps(answer))

with mock_aws():
    deployment = read_environment(os.environ).deployment
    clients = Clients(deployment.region)
    create_table(clients, deployment)
    create_bucket(clients, deployment)
    from iii_runtime.hosts.aws_lambda.function import handler
    context = Context()
"""

MESSAGES = """
from iii_runtime.hosts.aws_lambda.bundle import load_manifest
from iii_runtime.plan.queues import plan_queues
from iii_runtime.testing.stores import outgoing_message
from tests.contract.aws_services import create_queues
from tests.host.lambda_kit import again, failures, sqs_record

app = load_manifest(read_environment(os.environ).root)
queue = plan_queues(app.config, app.catalog, deployed=True)["calls"]
create_queues(clients, deployment, [queue])
name = deployment.queue_name(queue)

def messages(*payloads):
    records = []
    for number, payload in enumerate(payloads):
        body = outgoing_message(queue, f"receipt-{number}", payload, function_id="shop::call").body
        clients.sqs.send_message(QueueUrl=deployment.queue_url(name), MessageBody=body)
        answer = clients.sqs.receive_message(QueueUrl=deployment.queue_url(name), AttributeNames=["All"])
        records.append(sqs_record(answer["Messages"][0], name))
    return {"Records": records}

def left(event, response):
    ids = [record["messageId"] for record in event["Records"]]
    return [ids.index(message_id) for message_id in failures(response)]

def failed_attempts():
    items = clients.dynamodb.scan(TableName=deployment.table_name)["Items"]
    return [int(item["n"]["N"]) for item in items if "n" in item]
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Write the code and the manifest of an app."""
    (tmp_path / "bundled_work.py").write_text(CODE)
    space: dict[str, Any] = {"__name__": "bundled_work"}
    with collecting_workers() as workers:
        exec(compile(CODE, str(tmp_path / "bundled_work.py"), "exec"), space)  # noqa: S102 - our own text
    config = Config(
        queues={name: QueueConfig(name=name, max_retries=2, backoff_ms=60_000) for name in ("jobs", "calls")}
    )
    stored = describe_app(config, workers, ["bundled_work"])
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(stored))
    return tmp_path


@pytest.fixture
def in_lambda(bundle: Path) -> Callable[..., tuple[list[Any], list[dict[str, Any]], list[str]]]:
    """Run statements where the handler is; returns answers, lines of the log, and everything else that was printed."""

    def run(
        statements: str, *, exit_code: int = 0, **variables: str
    ) -> tuple[list[Any], list[dict[str, Any]], list[str]]:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{bundle}:{ROOT}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "LAMBDA_TASK_ROOT": str(bundle),
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
            "III_APP": "shop",
            "III_STAGE": "test",
            "III_ACCOUNT": "123456789012",
            "III_FUNCTION": "shop::work",
            **variables,
        }
        body = "".join(f"    {line}\n" for line in statements.strip().splitlines())
        command = [sys.executable, "-W", "error", "-c", LAMBDA + body]
        result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=100)
        assert result.returncode == exit_code, result.stderr
        lines = result.stdout.splitlines()
        answers = [json.loads(line.removeprefix("ANSWER ")) for line in lines if line.startswith("ANSWER ")]
        log = [json.loads(line) for line in lines if line.startswith("{")]
        return answers, log, [line for line in lines if not line.startswith(("ANSWER ", "{"))]

    return run


def worked(log: list[dict[str, Any]]) -> list[int]:
    """Return the numbers of the jobs that a function has finished."""
    return [line["data"]["job"]["n"] for line in log if line.get("message") == "working"]


@pytest.mark.process
def test_one_cold_start_serves_every_event_and_bodies_run_on_the_main_thread(in_lambda: Callable[..., Any]) -> None:
    answers, log, others = in_lambda("show(handler(call({'n': 1}), context))\nshow(handler(http({'n': 2}), context))")
    assert others == ["imported"]
    called, requested = answers
    assert called == {"ok": {"status_code": 200, "body": {"main": True, "did": {"n": 1}}}}
    assert json.loads(requested["body"]) == {"main": True, "did": {"n": 2}}
    working = [line for line in log if line["message"] == "working"]
    assert [line["data"] for line in working] == [{"job": {"n": 1}}, {"job": {"n": 2}}]
    for line in working:
        assert (line["function_id"], line["function_request_id"]) == ("shop::work", "r-1")
        assert len(line["trace_id"]) == 32
    (request,) = [line for line in log if line["message"] == "request"]
    assert (request["name"], request["status"]) == ("iii_runtime.http", 200)


@pytest.mark.process
def test_a_body_whose_time_is_up_is_ended_measured_and_does_not_run_on_into_the_next_event(
    in_lambda: Callable[..., Any],
) -> None:
    answers, log, _ = in_lambda("""
show(handler(http({'endless': True}), context))
show(handler(call({'endless': True}), context))
show(handler(call({'n': 3}), context))
import threading
show([thread.name for thread in threading.enumerate()])
""")
    first, second, third, threads = answers
    assert (first["statusCode"], json.loads(first["body"])["error"]["code"]) == (504, "TIMEOUT")
    assert second["error"]["code"] == "TIMEOUT"
    assert third["ok"]["body"] == {"main": True, "did": {"n": 3}}
    assert "iii-handler" not in threads
    measured = [line for line in log if "_aws" in line]
    assert [(line["Function"], line["FunctionErrors"]) for line in measured] == [("shop::work", [1.0])] * 2
    assert not any("endless" in json.dumps(line) for line in log)


@pytest.mark.process
def test_an_async_handler_that_blocks_is_ended_and_its_sandbox_serves_every_event_that_follows(
    in_lambda: Callable[..., Any],
) -> None:
    answers, log, _ = in_lambda(
        MESSAGES
        + """
import time
event = messages({'hung': True}, {'n': 1}, {'n': 2})
began = time.monotonic()
show(left(event, handler(event, context)))
show(handler(http({'hung': True}), context))
show(handler(call({'hung': True}), context))
show(failed_attempts())
for number in (3, 4):
    event = messages({'n': number})
    show(left(event, handler(event, context)))
show(handler(http({'n': 5}), context))
show(handler(call({'n': 6}), context))
show([time.monotonic() - began < 20, failed_attempts()])
""",
        III_FUNCTION="shop::call",
    )
    batch, requested, called, attempts, *messages, http_answer, call_answer, end = answers
    assert batch == [0]
    assert (requested["statusCode"], json.loads(requested["body"])["error"]["code"]) == (504, "TIMEOUT")
    assert called["error"]["code"] == "TIMEOUT"
    assert attempts == [1]
    assert messages == [[], []]
    assert json.loads(http_answer["body"]) == {"did": {"n": 5}}
    assert call_answer["ok"]["body"] == {"did": {"n": 6}}
    assert end == [True, [1]]
    assert worked(log) == [1, 2, 3, 4, 5, 6]


@pytest.mark.process
@pytest.mark.parametrize("job", [{"hung": True, "deaf": True}, {"stays": True}])
def test_a_handler_that_cannot_be_ended_ends_the_process_once_its_attempt_is_stored_and_nothing_is_acknowledged(
    in_lambda: Callable[..., Any], job: dict[str, bool]
) -> None:
    answers, log, _ = in_lambda(
        MESSAGES
        + f"job = {job}"
        + """
end = os._exit

def note_and_end(code):
    state = clients.sqs.get_queue_attributes(
        QueueUrl=deployment.queue_url(name), AttributeNames=["All"])["Attributes"]
    kept = int(state["ApproximateNumberOfMessages"]) + int(state["ApproximateNumberOfMessagesNotVisible"])
    show([failed_attempts(), kept])
    sys.stdout.flush()
    end(code)

os._exit = note_and_end
handler(messages({'n': 1}, job, {'n': 2}), context)
show("an answer")
""",
        exit_code=EXIT_CODE,
        III_FUNCTION="shop::call",
    )
    # The one that is done is deleted, the one that hung waits for its second attempt, the last one for its first.
    assert answers == [[[1], 2]]
    assert worked(log) == [1]
    (line,) = [line for line in log if line.get("name") == "iii_runtime.host"]
    assert line["message"] == "a handler does not end after its timeout, so the process does; no answer can leave"


@pytest.mark.process
@pytest.mark.parametrize("function", ["shop::work", "shop::call"])
def test_a_handler_whose_time_is_up_while_it_waits_for_another_lambda_is_answered_and_that_one_has_hardly_more(
    in_lambda: Callable[..., Any], function: str
) -> None:
    answers, log, _ = in_lambda(
        """
import io, threading, time
end = threading.Event()

class Slow:
    def invoke(self, *, Payload, **_):
        bounds.append(json.loads(Payload)["iii"]["call"]["ms"])
        end.wait(20)
        return {"StatusCode": 200, "Payload": io.BytesIO(b'{"ok": 1}')}

bounds = []
Clients.invoking = lambda self, timeout: Slow()
began = time.monotonic()
show(handler(http({'calls': True}), context))
show(handler(call({'calls': True}), context))
show(handler(call({'n': 3}), context))
show([time.monotonic() - began < 10, bounds])
end.set()
""",
        III_FUNCTION=function,
    )
    requested, called, following, (is_prompt, bounds) = answers
    assert (requested["statusCode"], json.loads(requested["body"])["error"]["code"]) == (504, "TIMEOUT")
    assert called["error"]["code"] == "TIMEOUT"
    assert following["ok"]["body"]["did"] == {"n": 3}
    assert is_prompt
    assert len(bounds) == 2
    assert all(500 < bound <= 1500 for bound in bounds)
    assert worked(log) == [3]


@pytest.mark.process
def test_a_start_that_fails_is_told_with_its_code_and_tried_again_at_the_next_event(
    in_lambda: Callable[..., Any], bundle: Path
) -> None:
    (bundle / MANIFEST_NAME).rename(bundle / "elsewhere.json")
    answers, log, _ = in_lambda(f"""
from iii_runtime.core.errors import HostError
for _ in range(2):
    try:
        handler(call({{'n': 1}}), context)
    except HostError as error:
        show(error.code)
from pathlib import Path
Path({str(bundle / "elsewhere.json")!r}).rename({str(bundle / MANIFEST_NAME)!r})
show(handler(call({{'n': 1}}), context))
""")
    assert answers[:2] == ["manifest_missing"] * 2
    assert answers[2]["ok"]["body"]["did"] == {"n": 1}
    failed = [line for line in log if line["message"] == "the event was not handled"]
    assert [line["code"] for line in failed] == ["manifest_missing"] * 2


@pytest.mark.process
def test_a_module_that_cannot_be_imported_is_told_with_file_and_line(
    in_lambda: Callable[..., Any], bundle: Path
) -> None:
    (bundle / "bundled_work.py").write_text("import iii_runtime\nimport no_such_module\n")
    answers, _, _ = in_lambda("""
try:
    handler(call({'n': 1}), context)
except Exception as error:
    show([error.code, str(error)])
""")
    ((code, message),) = answers
    assert code == "worker_import_failed"
    assert f"{bundle}/bundled_work.py:2: ModuleNotFoundError" in message


@pytest.mark.process
def test_a_missing_variable_is_told(in_lambda: Callable[..., Any]) -> None:
    answers, _, _ = in_lambda("""
del os.environ["III_APP"]
try:
    handler(call({'n': 1}), context)
except Exception as error:
    show(error.code)
""")
    assert answers == ["environment_invalid"]


@pytest.mark.process
def test_tracing_is_a_matter_of_a_variable(in_lambda: Callable[..., Any]) -> None:
    """Without a daemon of X-Ray the segments go nowhere; the handler works all the same, and none has content."""
    answers, log, _ = in_lambda(
        """
import aws_xray_sdk.core
sent = []
aws_xray_sdk.core.xray_recorder.emitter.send_entity = lambda entity: sent.append(entity.to_dict())
show(handler(call({'n': 1}), context))
show([(each.get("name"), sorted(each)) for each in sent])
""",
        III_TRACING="1",
        AWS_LAMBDA_FUNCTION_NAME="shop-test-f-shop--work",
        _X_AMZN_TRACE_ID="Root=1-69f8a2c0-000000000000000000000001;Parent=53995c3f42cd8ad8;Sampled=1",
    )
    assert answers[0]["ok"]["body"]["did"] == {"n": 1}
    names = [name for name, _ in answers[1]]
    assert names == ["## invoke"]
    assert all("metadata" not in members for _, members in answers[1])
    assert {line.get("xray_trace_id") for line in log} == {"1-69f8a2c0-000000000000000000000001"}
