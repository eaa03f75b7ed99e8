"""Answers in this process what a client asks of the Lambda service: only the wire is not real.

The credentials and the region are those of nobody, and nothing reaches the network.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import boto3
import botocore.handlers
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.compat import HTTPHeaders

from iii_runtime.core.queue import QueueSpec
from iii_runtime.plan.names import Deployment

REGION: Literal["eu-west-1"] = "eu-west-1"
ACCOUNT = "123456789012"

Reply = tuple[int, Mapping[str, str], Any]
"""Status, headers, JSON."""


class _Body(io.BytesIO):
    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


class Asked(list[Any]):
    """The requests that were answered: each the name at the end of its path, and its JSON."""


def lambda_service(monkeypatch: pytest.MonkeyPatch, operation: str, reply: Callable[[str, Any], Reply]) -> Asked:
    """Let `reply(name, body)` answer one operation of the Lambda service, for clients made from now on.

    Args:
        monkeypatch: Undoes it.
        operation: Such as `Invoke`.
        reply: Gets the name in the path, of a function or mapping, and the body as JSON. May raise.
    """
    asked = Asked()

    def answer(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        body: Any = request.body
        content = body.read() if hasattr(body, "read") else body
        parts = request.url.partition("?")[0].rstrip("/").split("/")
        name = parts[-2] if parts[-1] == "invocations" else parts[-1]
        asked.append((name, json.loads(content) if content else None))
        status, headers, told = reply(*asked[-1])
        fields = HTTPHeaders()
        for key, value in headers.items():
            fields[key] = value
        raw: Any = _Body(told if isinstance(told, bytes) else json.dumps(told).encode())
        # The library goes on to ask the handler of moto, which is to see nothing of this request.
        request.url = "http://127.0.0.1/answered"
        return AWSResponse(request.url, status, fields, raw)

    # What the library registers with each client it makes. The first reply counts, that of the more specific name.
    route = (f"before-send.lambda.{operation}", answer)
    monkeypatch.setattr(botocore.handlers, "BUILTIN_HANDLERS", [*botocore.handlers.BUILTIN_HANDLERS, route])
    return asked


def refusal(status: int, code: str, message: str) -> Reply:
    """Return how the Lambda service refuses a request."""
    return status, {"x-amzn-errortype": code}, {"Message": message}


def own_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the credentials of nobody, and look for no others."""
    no_credentials(monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "none")
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)


def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no credentials, no region, and no configuration of AWS."""
    for name in ("PROFILE", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def add_consumer(deployment: Deployment, queue: QueueSpec) -> None:
    """Make an SQS queue in moto that the dispatcher of the stage consumes; without Docker nothing is run."""
    physical, dispatcher = deployment.queue_name(queue), deployment.system_name("dispatcher")
    sqs, functions = boto3.client("sqs", deployment.region), boto3.client("lambda", deployment.region)
    sqs.create_queue(QueueName=physical, Attributes={"FifoQueue": "true"} if queue.is_ordered else {})
    if dispatcher not in {each["FunctionName"] for each in functions.list_functions()["Functions"]}:
        iam = boto3.client("iam", deployment.region)
        role = iam.create_role(RoleName=dispatcher, AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("a.py", "")
        functions.create_function(
            FunctionName=dispatcher, Role=role, Runtime="python3.13", Handler="a.b", Code={"ZipFile": code.getvalue()}
        )
    functions.create_event_source_mapping(EventSourceArn=deployment.queue_arn(physical), FunctionName=dispatcher)
