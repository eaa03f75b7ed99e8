"""What the tests of the Lambda entry points share: contexts, sandboxes, messages as SQS hands them to a Lambda."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from iii_runtime.adapters.threads import ThreadExecutor
from iii_runtime.core.payload import Json
from iii_runtime.core.queue import QueueSpec
from iii_runtime.hosts.aws_lambda.bootstrap import Handle
from iii_runtime.hosts.aws_lambda.environment import Environment
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.plan.manifest import Manifest, describe_app, read_manifest
from iii_runtime.plan.queues import plan_queues
from iii_runtime.ports.meter import MetricName
from iii_runtime.testing.clock import SequenceIds
from iii_runtime.testing.stores import outgoing_message
from tests.contract.aws_services import DEPLOYMENT, HastyClock, Services, create_queues, running_services
from tests.host import lambda_app

FUNCTION_MODULES = "tests.host.lambda_app"


def manifest() -> Manifest:
    """Return the manifest of the app, after the way through its stored form."""
    stored = describe_app(lambda_app.CONFIG, [lambda_app.worker], [FUNCTION_MODULES])
    return read_manifest(json.loads(json.dumps(stored)))


class Context:
    """An invocation that has some time, on the clock of a test."""

    def __init__(self, clock: HastyClock, timeout: timedelta = timedelta(seconds=35)) -> None:
        self.aws_request_id = "request-1"
        self._clock = clock
        self.ends = clock.now() + timeout

    def get_remaining_time_in_millis(self) -> int:
        """Return what is left."""
        return (self.ends - self._clock.now()) // timedelta(milliseconds=1)


class Measured:
    """A meter that remembers."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str | None], float] = {}

    def add(
        self, name: MetricName, value: float = 1, *, function_id: str | None = None, queue: str | None = None
    ) -> None:
        """Add it up."""
        key = (name, function_id or queue)
        self.counts[key] = self.counts.get(key, 0) + value


@dataclass(slots=True)
class FakeLambda:
    """The Lambda service: sends each Invoke to whoever stands behind the name.

    Attributes:
        functions: By name: gets the payload, returns the answer.
        refusals: Codes with which the next Invokes are refused; each is used once.
        started: Names and payloads of the Invokes nobody waits for.
    """

    functions: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    started: list[tuple[str, Any]] = field(default_factory=list)

    def invoke(self, *, FunctionName: str, Payload: bytes | str, InvocationType: str = "RequestResponse") -> Any:  # noqa: N803
        """Answer as Lambda does."""
        if self.refusals:
            raise _refused(self.refusals.pop(0))
        event = json.loads(Payload)
        if InvocationType == "Event":
            self.started.append((FunctionName, event))
            return {"StatusCode": 202}
        if FunctionName not in self.functions:
            raise _refused("ResourceNotFoundException")
        answer = json.dumps(self.functions[FunctionName](event)).encode()
        return {"StatusCode": 200, "Payload": io.BytesIO(answer)}


_STATUSES = {"TooManyRequestsException": 429, "ResourceNotFoundException": 404}


def _refused(code: str) -> ClientError:
    status = _STATUSES.get(code, 403)
    error: Any = {"Error": {"Code": code, "Message": "refused"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(error, "Invoke")


@dataclass(slots=True)
class Stage:
    """The app in a stage, held in memory.

    Attributes:
        services: Table, bucket and queues.
        app: The app.
        clock: The time.
        lambdas: The Lambda service.
        meter: What was measured.
    """

    services: Services
    app: Manifest
    clock: HastyClock
    ids: SequenceIds
    lambdas: FakeLambda
    meter: Measured
    open: list[Sandbox] = field(default_factory=list)

    @property
    def queues(self) -> Mapping[str, QueueSpec]:
        """The queues as they are on AWS."""
        return plan_queues(self.app.config, self.app.catalog, deployed=True)

    def sandbox(self, function_id: str | None = None, *, secrets: Mapping[str, str] | None = None) -> Sandbox:
        """Return a fresh sandbox of a function's Lambda, or of one of the runtime's own."""
        made = Sandbox(
            Environment(deployment=DEPLOYMENT, function_id=function_id, secrets=secrets or {}),
            self.app,
            clients=self.services.clients,
            clock=self.clock,
            ids=self.ids,
            executor=ThreadExecutor(),
            meter=self.meter,
        )
        self.open.append(made)
        return made

    def serve(self, name: str, sandbox: Sandbox, handle: Handle) -> None:
        """Let Invokes of a Lambda reach a sandbox."""
        self.lambdas.functions[name] = lambda event: handle(sandbox, event, Context(self.clock))

    def put(self, queue: str, payload: Json, function_id: str) -> str:
        """Put a message on a queue as an enqueue does; returns its receipt."""
        receipt = self.ids.new_id()
        accepted_ms = self.clock.now_ms()
        message = outgoing_message(
            self.queues[queue], receipt, payload, function_id=function_id, accepted_ms=accepted_ms
        )
        self.send(queue, message.body, group=message.group)
        return receipt

    def send(self, queue: str, body: str, *, group: str | None = None) -> None:
        """Put a body on a queue as it is."""
        spec = self.queues[queue]
        ordered: Any = {"MessageGroupId": group, "MessageDeduplicationId": self.ids.new_id()} if group else {}
        self.services.clients.sqs.send_message(
            QueueUrl=DEPLOYMENT.queue_url(DEPLOYMENT.queue_name(spec)), MessageBody=body, **ordered
        )

    def receive(self, queue: str, limit: int = 10) -> dict[str, Any]:
        """Receive messages and return the event that Lambda makes of them."""
        return self.receive_from(DEPLOYMENT.queue_name(self.queues[queue]), limit)

    def receive_from(self, name: str, limit: int = 10) -> dict[str, Any]:
        """Do the same for a queue by its name on AWS."""
        answer = self.services.clients.sqs.receive_message(
            QueueUrl=DEPLOYMENT.queue_url(name), MaxNumberOfMessages=limit, AttributeNames=["All"], WaitTimeSeconds=0
        )
        return {"Records": [sqs_record(message, name) for message in answer.get("Messages", [])]}

    def watch_visibility(self) -> list[tuple[str, int]]:
        """Return a list that fills with each change of a visibility: the handle, and the seconds."""
        changes: list[tuple[str, int]] = []

        def note(params: Any, **_: object) -> None:
            changes.append((params["ReceiptHandle"], params["VisibilityTimeout"]))

        self.services.clients.sqs.meta.events.register("provide-client-params.sqs.ChangeMessageVisibility", note)
        return changes

    def remove(self, event: Mapping[str, Any], response: Any) -> None:
        """Do what Lambda does with a partial batch response."""
        failed = {item["itemIdentifier"] for item in response["batchItemFailures"]}
        for record in event["Records"]:
            if record["messageId"] not in failed:
                url = DEPLOYMENT.queue_url(record["eventSourceARN"].rpartition(":")[2])
                self.services.clients.sqs.delete_message(QueueUrl=url, ReceiptHandle=record["receiptHandle"])


def again(event: Mapping[str, Any], receives: int = 2) -> dict[str, Any]:
    """Return an event as it is when its messages are received for another time."""
    records = [
        {**record, "attributes": {**record["attributes"], "ApproximateReceiveCount": str(receives)}}
        for record in event["Records"]
    ]
    return {"Records": records}


def sqs_record(message: Any, queue_name: str) -> dict[str, Any]:
    """Return a received message as a record of a Lambda event."""
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": dict(message["Attributes"]),
        "messageAttributes": {},
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": DEPLOYMENT.queue_arn(queue_name),
        "awsRegion": DEPLOYMENT.region,
    }


@contextmanager
def running_stage(start: datetime | None = None, app: Manifest | None = None) -> Iterator[Stage]:
    """Run the stage of an app, by default that of `lambda_app`, until the block ends."""
    lambda_app.seen.clear()
    lambda_app.meanwhile.clear()
    lambda_app.release.clear()
    clock = HastyClock()
    if start is not None:
        clock.advance_to(start)
    with running_services() as services:
        lambdas = FakeLambda()
        services.clients.__dict__["invoking"] = lambda _timeout: lambdas
        stage = Stage(
            services=services,
            app=app or manifest(),
            clock=clock,
            ids=SequenceIds(),
            lambdas=lambdas,
            meter=Measured(),
        )
        create_queues(services.clients, DEPLOYMENT, list(stage.queues.values()))
        try:
            yield stage
        finally:
            lambda_app.release.set()
            for sandbox in stage.open:
                sandbox.close()


def failures(response: Json) -> list[str]:
    """Return the message ids that a partial batch response reports."""
    assert isinstance(response, dict)
    left = response["batchItemFailures"]
    assert isinstance(left, list)
    return [item["itemIdentifier"] for item in left if isinstance(item, dict)]  # type: ignore[misc]
