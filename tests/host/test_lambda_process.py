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
from iii_runtime.plan.manifest import MANIFEST_NAME, describe_app

ROOT = Path(__file__).resolve().parents[2]

CODE = """
import threading, time
from datetime import timedelta
from iii_runtime import ApiResponse, Http, Logger, Queue, current_invocation, register_worker

print("imported")
worker = register_worker(worker_name="bundled")

@worker.function("shop::work", triggers=[Queue("jobs"), Http("POST", "/work")], timeout=timedelta(seconds=1))
def work(data):
    job = data["body"] if "body" in data else data
    if job.get("endless"):
        while True:
            time.sleep(0.01)
    Logger().info("working", {"job": job})
    is_main = threading.current_thread() is threading.main_thread()
    return {"status_code": 200, "body": {"main": is_main, "did": job}}
"""

LAMBDA = """
import json, sys
from moto import mock_aws
from tests.contract.aws_services import create_bucket, create_queues, create_table
from iii_runtime.core.queue import QueueSpec
from iii_runtime.hosts.aws_lambda.environment import read_environment
from iii_runtime.adapters.aws.clients import Clients
import os

class Context:
    aws_request_id = "r-1"
    def get_remaining_time_in_millis(self):
        return 16_000

def http(body):
    return {"version": "2.0", "rawPath": "/work", "headers": {"content-type": "application/json"},
            "requestContext": {"http": {"method": "POST"}}, "body": json.dumps(body)}

def call(payload):
    return {"iii": {"v": 1, "kind": "call", "call": {
        "fn": "shop::work", "src": "direct", "att": 1, "hops": 0, "depth": 0, "p": payload}}}

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


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Write the code and the manifest of an app."""
    (tmp_path / "bundled_work.py").write_text(CODE)
    space: dict[str, Any] = {"__name__": "bundled_work"}
    with collecting_workers() as workers:
        exec(compile(CODE, str(tmp_path / "bundled_work.py"), "exec"), space)  # noqa: S102 - our own text
    config = Config(queues={"jobs": QueueConfig(name="jobs", max_retries=2)})
    stored = describe_app(config, workers, ["bundled_work"])
    (tmp_path / MANIFEST_NAME).write_text(json.dumps(stored))
    return tmp_path


@pytest.fixture
def in_lambda(bundle: Path) -> Callable[..., tuple[list[Any], list[dict[str, Any]], list[str]]]:
    """Run statements where the handler is; returns answers, lines of the log, and everything else that was printed."""

    def run(statements: str, **variables: str) -> tuple[list[Any], list[dict[str, Any]], list[str]]:
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
        assert result.returncode == 0, result.stderr
        lines = result.stdout.splitlines()
        answers = [json.loads(line.removeprefix("ANSWER ")) for line in lines if line.startswith("ANSWER ")]
        log = [json.loads(line) for line in lines if line.startswith("{")]
        return answers, log, [line for line in lines if not line.startswith(("ANSWER ", "{"))]

    return run


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
