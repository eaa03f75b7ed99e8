"""Events for Lambdas: those of the repository, and some of the tests' own."""

from __future__ import annotations

import json
from typing import Any

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.system import SystemClock, Uuid4Source
from iii_runtime.core.payload import Json
from iii_runtime.testing.stores import outgoing_message
from tests.lambda_runtime.built import DEPLOYMENT, ROOT, Built


def stored_event(name: str) -> Any:
    """Return an event of the folder `events`, such as `http/order-ok`."""
    return json.loads((ROOT / "events" / f"{name}.json").read_bytes())


def message_event(services: Clients, built: Built, queue: str, payload: Json, *, function_id: str) -> Any:
    """Send a message as an enqueue does, receive it, and return the event that Lambda makes of it."""
    spec, clock = built.plan.queues[queue].spec, SystemClock()
    receipt = Uuid4Source().new_id()
    message = outgoing_message(spec, receipt, payload, function_id=function_id, accepted_ms=clock.now_ms())
    return sent_event(services, built, queue, message.body, group=message.group)


def sent_event(services: Clients, built: Built, queue: str, body: str, *, group: str | None = None) -> Any:
    """Send a body as it is, receive it, and return the event that Lambda makes of it."""
    name = built.plan.queues[queue].name
    url = DEPLOYMENT.queue_url(name)
    ordered: Any = {"MessageGroupId": group, "MessageDeduplicationId": Uuid4Source().new_id()} if group else {}
    sent = services.sqs.send_message(QueueUrl=url, MessageBody=body, **ordered)["MessageId"]
    received = services.sqs.receive_message(QueueUrl=url, AttributeNames=["All"], MaxNumberOfMessages=10)["Messages"]
    (message,) = (each for each in received if each["MessageId"] == sent)
    record = {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": DEPLOYMENT.queue_arn(name),
        "awsRegion": DEPLOYMENT.region,
    }
    return {"Records": [record]}


def call(function_id: str, payload: Any) -> dict[str, Any]:
    """Return the event of a call by another function."""
    fields = {"fn": function_id, "src": "direct", "att": 1, "hops": 0, "depth": 0, "p": payload}
    return {"iii": {"v": 1, "kind": "call", "call": fields}}


def trigger(function_id: str, payload: Any) -> dict[str, Any]:
    """Return the event of a request of the command line."""
    return {"iii": {"v": 1, "kind": "trigger", "request": {"function_id": function_id, "payload": payload}}}


def http(path: str, query: str = "", *, method: str = "GET", **members: Any) -> dict[str, Any]:
    """Return the event of an http request."""
    return {
        "version": "2.0",
        "routeKey": f"{method} {path}",
        "rawPath": path,
        "rawQueryString": query,
        "headers": {"content-type": "application/json"},
        "requestContext": {"http": {"method": method, "path": path}, "stage": "$default"},
        "isBase64Encoded": False,
        **members,
    }
