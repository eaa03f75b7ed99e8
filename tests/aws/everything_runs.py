"""Makes the app of `everything` do everything: messages, letters, state, streams, topics, schedules, sockets, secrets.

Each scenario is about one part; together they make every request that the code of the runtime can make on AWS, so that
what the roles allow beyond that stands out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import boto3
import pytest
from botocore.config import Config as BotoConfig

from iii_runtime.core.errors import IiiError
from iii_runtime.core.payload import Json
from iii_runtime.core.remote import RemoteTrigger, decode_answer, encode_request
from iii_runtime.core.remote_error import error_of
from tests.aws.calls import Answered, Call, refuse, shared_session
from tests.aws.cloud import REGION
from tests.aws.everything import CONFIG, LARGE, SECRETS, everything
from tests.aws.gateway import Connection
from tests.aws.iam import Guard, guard_of
from tests.aws.invocations import Invocation
from tests.aws.simulator import Simulator

MEDIUM = 300 * 1024
"""Characters that no message carries, and that an item does."""

STATE_LIMIT = 400 * 1024
"""Characters that no item carries."""

LETTER = 40 * 1024
"""Characters that make a letter too large for its item."""


@dataclass(slots=True)
class Everything:
    """The app, deployed and guarded.

    Attributes:
        simulator: What it runs on.
        guard: Checks every request by the role of its Lambda.
    """

    simulator: Simulator
    guard: Guard

    def control(self, function_id: str, action: Mapping[str, Json] | None = None, /, **payload: Json) -> Any:
        """Do something from the command line."""
        told = None if action is None else dict(action)
        return self.ask({"function_id": function_id, "payload": payload, "action": told})

    def function(self, function_id: str, action: Json = None, /, *, by: str = "any::run", **payload: Json) -> Any:
        """Do something from within a function."""
        inner: Json = {"function_id": function_id, "payload": payload, "action": action}
        return self.ask({"function_id": by, "payload": inner})

    def ask(self, request: Mapping[str, Json]) -> Any:
        """Have a request carried out as the command line does; None if the answer lies in the bucket."""
        name = self.simulator.deployment.system_name("control")
        answer = decode_answer(self.simulator.lambdas.invoke(name, encode_request(RemoteTrigger(request=request))))
        if answer.error is not None:
            raise error_of(answer.error)
        return answer.result

    def both(self, function_id: str, **payload: Json) -> None:
        """Do something from the command line and from within a function."""
        self.control(function_id, **payload)
        self.ask({"function_id": "any::run", "payload": {"function_id": function_id, "payload": payload}})

    def enqueue(self, queue: str, function_id: str, action: Mapping[str, Json] | None = None, **payload: Json) -> str:
        """Put a message on a queue, and let what is due happen."""
        receipt = self.control(function_id, {"type": "enqueue", "queue": queue, **(action or {})}, **payload)
        self.simulator.run_due()
        return str(receipt["messageReceiptId"])

    def put(self, queue: str, body: str) -> None:
        """Put a body on a queue, as somebody does who does not know the runtime."""
        planned = self.simulator.plan.queues[queue]
        url = self.simulator.deployment.queue_url(planned.name)
        self.simulator.cloud.clients.sqs.send_message(QueueUrl=url, MessageBody=body)

    def lose_objects(self, prefix: str) -> None:
        """Remove all objects of a kind."""
        bucket, s3 = self.simulator.deployment.bucket_name, self.simulator.cloud.clients.s3
        for found in s3.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", []):
            s3.delete_object(Bucket=bucket, Key=found["Key"])

    def lose_items(self, prefix: str) -> None:
        """Remove all items of a kind."""
        dynamodb, table = self.simulator.cloud.clients.dynamodb, self.simulator.deployment.table_name
        for item in dynamodb.scan(TableName=table)["Items"]:
            if item["pk"]["S"].startswith(prefix):
                dynamodb.delete_item(TableName=table, Key={name: item[name] for name in ("pk", "sk")})

    @contextmanager
    def refusing(self, *operations: str) -> Iterator[None]:
        """Let the WebSocket API refuse some operations for good."""

        def answer(_invocation: Invocation, call: Call) -> Answered | None:
            return refuse("BadRequestException") if call.operation in operations else None

        self.guard.answers.append(answer)
        try:
            yield
        finally:
            self.guard.answers.remove(answer)

    def fails(self, code: str, act: Callable[[], Any]) -> None:
        """Do something that is expected to fail, and not for want of a right."""
        with pytest.raises(IiiError) as caught:
            act()
        assert code in str(caught.value) or code == caught.value.code, caught.value


@contextmanager
def deployed_everything() -> Iterator[Everything]:
    """Deploy the app, with its secrets."""
    with pytest.MonkeyPatch.context() as patch, Simulator([everything()], CONFIG) as simulator:
        # Parameters and secrets are read by clients of their own.
        patch.setattr(boto3.session, "Session", shared_session)
        session, region = shared_session(), BotoConfig(region_name=REGION)
        parameters, secrets = (session.client(name, config=region) for name in ("ssm", "secretsmanager"))
        for name in ("plain", "/shop/dev/nested", "/shop/labelled"):
            parameters.put_parameter(Name=name, Value="hidden", Type="SecureString")
        secrets.create_secret(Name="shop/dev/token", SecretString="hidden")
        guard = guard_of(simulator.plan)
        simulator.lambdas.overseer = guard
        yield Everything(simulator, guard)


def messages(app: Everything) -> None:
    """Messages of queues with and without a consumer of their own: done, failed, for others, large, twice, late."""
    app.enqueue("bound", "bound::work", {"dedupe_id": "one"})
    app.enqueue("bound", "bound::work", {"dedupe_id": "one", "delay": 5})
    app.enqueue("bound", "bound::work", text="x" * MEDIUM)
    app.enqueue("bound", "any::act")
    app.enqueue("ordered", "ordered::work", group="a")
    app.enqueue("shared", "any::act")
    app.enqueue("shared-ordered", "any::act", group="a")
    app.enqueue("shared", "any::act", text="x" * LARGE, size=LARGE)
    request: Json = {"type": "enqueue", "queue": "shared", "dedupe_id": "two"}
    app.function("any::act", request, text="x" * MEDIUM)
    app.enqueue("bound", "bound::work", fail=True, text="x" * LETTER)
    app.enqueue("shared", "any::act", fail=True, text="x" * LETTER)
    app.simulator.settle()
    for queue, function_id in (("ordered", "ordered::work"), ("shared-ordered", "any::act")):
        app.enqueue(queue, function_id, fail=True, group="a")
        app.simulator.settle()
        # What comes back from the console has the group of its letter, and is sent again under its own.
        app.simulator.console_redrive(queue)
        app.simulator.run_due()
    app.simulator.settle()


def letters(app: Everything) -> None:
    """Dead letters and queues, by the command line and by a function."""
    for queue, by in (("bound", app.control), ("shared", app.function)):
        target = "bound::work" if queue == "bound" else "any::act"
        receipts = [app.enqueue(queue, target, die=True, text="x" * size) for size in (1, LETTER, MEDIUM, 2, 3)]
        by("engine::queue::dlq_topics")
        assert len(by("engine::queue::dlq_messages", queue=queue)) >= len(receipts)
        for receipt in receipts:
            assert by("engine::queue::dlq_message", message_id=receipt)["id"] == receipt
        by("iii::queue::redrive_message", queue=queue, message_id=receipts[0])
        by("iii::queue::discard_message", queue=queue, message_id=receipts[1])
        app.simulator.run_due()
        assert by("iii::queue::redrive", queue=queue)["redriven"] >= 2
        app.simulator.run_due()
        assert by("iii::queue::discard", queue=queue)["discarded"] >= 2
        by("engine::queue::topic_stats", queue=queue)
        by("engine::queue::list")
        by("engine::queue::list_topics")
        by("engine::functions::list")
    app.function("engine::queue::topic_stats", by="narrow::run", queue="bound")
    app.control("iii::queue::purge", queue="bound")
    app.simulator.settle()


def moved_by_sqs(app: Everything) -> None:
    """What SQS gives up by itself is adopted by the command line, and by the minute tick."""
    for queue in ("bound", "ordered"):
        app.simulator.source(queue).throttles = app.simulator.plan.queues[queue].max_receives
        app.enqueue(queue, f"{queue}::work", text="x" * LETTER, group="a")
    app.simulator.settle()
    assert app.control("iii::queue::redrive", queue="bound")["redriven"] == 1
    app.simulator.advance(timedelta(minutes=3))
    causes = [letter["cause"] for letter in app.control("engine::queue::dlq_messages", queue="ordered")]
    assert causes == ["failed", "native"]
    # A letter that is a link, since it is no envelope, and that no item knows any more.
    for adopt in (
        lambda: app.simulator.advance(timedelta(minutes=3)),
        lambda: app.control("iii::queue::redrive", queue="shared"),
    ):
        app.put("shared", "no envelope " * (MEDIUM // 12))
        app.simulator.settle()
        app.lose_items("M#")
        adopt()
        app.control("iii::queue::discard", queue="shared")
        app.simulator.advance(timedelta(minutes=3))


def documents(app: Everything) -> None:
    """State and streams: small, large, replaced, listed; by the command line and by a function."""
    for text in ("x", "x" * STATE_LIMIT, "x"):
        app.both("state::set", scope="things", key="a", value={"text": text})
        app.both("stream::set", stream_name="feed", group_id="g", item_id="i", data={"text": text})
    for size in (1, STATE_LIMIT):
        value: Json = {"type": "set", "path": "text", "value": "y" * size}
        app.both("state::update", scope="things", key="a", ops=[value])
        app.both("stream::update", stream_name="feed", group_id="g", item_id="i", ops=[value])
        app.both("stream::send", stream_name="feed", group_id="g", type="note", data="z" * size)
        app.both("state::get", scope="things", key="a")
        app.both("stream::get", stream_name="feed", group_id="g", item_id="i")
        app.both("state::list", scope="things")
        app.both("stream::list", stream_name="feed", group_id="g")
    app.both("state::list_groups")
    app.both("stream::list_groups", stream_name="feed")
    app.both("stream::list_all")
    app.both("stream::delete", stream_name="feed", group_id="g", item_id="i")
    app.both("state::delete", scope="things", key="a")
    # The function that a change starts is given more than an Invoke carries, and returns more.
    app.control("state::set", scope="things", key="b", value={"size": LARGE, "text": "x" * LARGE})
    app.simulator.settle()


def calls(app: Everything) -> None:
    """Functions call functions, wait or do not, and publish; the command line does too."""
    for by in ("any::run", "narrow::run"):
        app.function("any::act", by=by, text="x" * LARGE, size=LARGE)
        app.function("any::act", {"type": "void"}, by=by, text="x" * MEDIUM)
        app.function("any::act", {"type": "enqueue", "queue": "bound"}, by=by)
        for topic in ("news", "prices"):
            app.function("iii::durable::publish", by=by, topic=topic, data="x" * MEDIUM)
            app.function("publish", by=by, topic=topic, data="x" * MEDIUM)
    app.control("any::act", {"type": "void"}, text="x" * MEDIUM)
    app.control("any::act", text="x" * LARGE)
    app.control("any::act", size=LARGE)
    for topic in ("news", "prices"):
        app.control("iii::durable::publish", topic=topic, data={"die": topic == "prices"})
        app.control("publish", topic=topic, data={})
    app.simulator.settle()


def requests(app: Everything) -> None:
    """Requests of the HTTP API, twice under one key, with answers that an item carries, and that none does."""
    for size in (1, MEDIUM + 1024 * 50):
        body = json.dumps({"any": size}).encode()
        headers = (("content-type", "application/json"), ("idempotency-key", f"key-{size}"))
        first, again = (app.simulator.http.request("POST", "/things", f"size={size}", headers, body) for _ in range(2))
        assert (first.status, first.body) == (200, again.body)
    assert app.simulator.http.request("GET", "/things", "", (), b"").status == 200


def schedules(app: Everything) -> None:
    """A rule, a schedule with a time zone, a tick of seconds; the command line starts jobs and lists them."""
    app.simulator.advance(timedelta(minutes=2, seconds=35))
    # The second tick finds no Lambda free at first.
    throttled, name = app.simulator.lambdas.throttled, app.simulator.deployment.function_name("cron::tick")
    throttled.add(name)
    app.simulator.advance(timedelta(seconds=10))
    throttled.discard(name)
    app.simulator.advance(timedelta(seconds=30))
    for job in ("rule", "schedule", "tick"):
        app.control("iii::cron::run", function_id=f"cron::{job}")
    app.control("iii::cron::list")


def sockets(app: Everything) -> None:
    """Viewers of a stream: those who join, leave, vanish, do not take what they are sent."""
    viewers = [_viewer(app) for _ in range(5)]
    app.control("stream::set", stream_name="feed", group_id="g", item_id="i", data={"text": "x"})
    app.control("stream::set", stream_name="feed", group_id="g", item_id="large", data={"text": "x" * STATE_LIMIT})
    app.simulator.run_due()
    for viewer in viewers:
        _send(app, viewer, "join")
        _send(app, viewer, "join", itemId="i")
    _send(app, viewers[0], "join", itemId="large")
    _send(app, viewers[0], "leave")
    _send(app, viewers[0], "join")
    app.simulator.websocket.disconnect(viewers[1])
    app.simulator.websocket.disconnect(viewers[2], is_noticed=False)
    app.control("stream::send", stream_name="feed", group_id="g", type="note", data=1)
    app.simulator.run_due()
    with app.refusing("PostToConnection"):
        _send(app, viewers[3], "join")
        assert not viewers[3].is_open
    with app.refusing("PostToConnection", "DeleteConnection"):
        app.control("stream::send", stream_name="feed", group_id="g", type="note", data=2)
        app.simulator.run_due()
    app.control("stream::send", stream_name="feed", group_id="g", type="note", data=3)
    app.simulator.run_due()
    assert [viewer.is_open for viewer in viewers] == [False] * len(viewers)


def secrets(app: Everything) -> None:
    """Secrets of every kind."""
    for name in SECRETS:
        assert app.ask({"function_id": "secrets::read", "payload": name}) == "hidden"


def losses(app: Everything) -> None:
    """Objects that are gone are told from objects that must not be read."""
    app.control("state::set", scope="lost", key="a", value="x" * STATE_LIMIT)
    app.control("stream::set", stream_name="lost", group_id="g", item_id="i", data="x" * STATE_LIMIT)
    app.simulator.run_due()
    viewer = _viewer(app)
    app.lose_objects("state/")
    app.fails("blob_missing", lambda: app.control("state::get", scope="lost", key="a"))
    app.fails("blob_missing", lambda: app.function("state::get", scope="lost", key="a"))
    _send(app, viewer, "join", streamName="lost", itemId="i")
    assert "is missing" in viewer.frames[-1]
    app.put("shared", "no envelope " * (MEDIUM // 12))
    app.simulator.settle()
    app.control("any::act", {"type": "enqueue", "queue": "shared"}, text="x" * MEDIUM)
    app.lose_items("M#")
    app.lose_objects("payloads/")
    app.simulator.advance(timedelta(minutes=4))
    app.control("state::set", scope="lost", key="b", value="x" * STATE_LIMIT)
    app.lose_objects("state/")
    app.simulator.run_due()


SCENARIOS = (schedules, messages, letters, moved_by_sqs, documents, calls, requests, sockets, secrets, losses)


def _viewer(app: Everything) -> Connection:
    answer = app.simulator.http.request("POST", "/_iii/stream-ticket", "", (), b"")
    return app.simulator.websocket.connect(ticket=json.loads(answer.body)["ticket"])


def _send(app: Everything, viewer: Connection, kind: str, **more: str) -> None:
    name = f"{more.get('streamName', 'feed')} {more.get('itemId', '')}"
    data = {"subscriptionId": name, "streamName": "feed", "groupId": "g", **more}
    app.simulator.websocket.send(viewer, json.dumps({"type": kind, "data": cast(Json, data)}))
