"""A stage with queues in memory: its hosts may be killed between any two requests, and its answers may get lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError

from iii_runtime.adapters.aws.message_queue import ReceivedRecord
from iii_runtime.adapters.aws.reconciler import Reconciler
from iii_runtime.core.message import ErrorRecord
from iii_runtime.core.payload import Json
from iii_runtime.core.queue import QueueSpec
from iii_runtime.ports.message_queue import Delivery
from iii_runtime.testing.clock import SequenceIds
from iii_runtime.testing.stores import outgoing_message
from tests.contract.aws_services import HastyClock, Services, running_services
from tests.contract.moto_time import let_sqs_follow
from tests.contract.sqs_services import StageLetters, StageQueue, stage_queues

STANDARD = QueueSpec(name="orders")
FIFO = QueueSpec(name="orders", kind="fifo", group_field="customer")
SINGLE = QueueSpec(name="orders", concurrency=1)
LEASE = timedelta(seconds=60)
ERROR = ErrorRecord(type="ValueError", message="no", stack="line 1")


class KilledError(BaseException):
    """The host is gone. Not an `Exception`: nothing in a host lives to handle it."""


@dataclass(slots=True)
class Mishaps:
    """What goes wrong, by the number of the request from 0 on, counted since `begin`.

    Attributes:
        kill_at: The host is killed before it sends this request.
        lose_at: The answer to this request is lost.
        refuse: Codes that the next requests of an operation are refused with, such as `{"SendMessage": ["..."]}`.
        between: What somebody else does just before the next request of an operation.
    """

    kill_at: int | None = None
    lose_at: int | None = None
    refuse: dict[str, list[str]] = field(default_factory=dict)
    between: dict[str, Callable[[], Coroutine[Any, Any, object]]] = field(default_factory=dict)
    sent: int = 0

    def begin(self, *, kill_at: int | None = None, lose_at: int | None = None) -> None:
        """Count anew."""
        self.kill_at, self.lose_at, self.sent = kill_at, lose_at, 0

    def watch(self, client: Any) -> None:
        """Let the requests of a client suffer."""
        client.meta.events.register_first("before-call", self._before)
        client.meta.events.register_last("after-call", self._after)

    def _before(self, model: Any, **_: object) -> None:
        number, self.sent = self.sent, self.sent + 1
        if number == self.kill_at:
            raise KilledError
        if somebody := self.between.pop(model.name, None):
            _at_once(somebody())
        if codes := self.refuse.get(model.name):
            raise ClientError({"Error": {"Code": codes.pop(0), "Message": "as asked"}}, model.name)

    def _after(self, **_: object) -> None:
        if self.sent - 1 == self.lose_at:
            raise ConnectionClosedError(endpoint_url="https://aws")


def _at_once(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run to its end what never waits."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


@dataclass(slots=True, kw_only=True)
class Stage:
    """Queues, letters and what is known of their requests."""

    services: Services
    clock: HastyClock
    queue: StageQueue
    letters: StageLetters
    reconciler: Reconciler
    mishaps: Mishaps

    async def send(self, spec: QueueSpec, *receipts: str, payload: Json = None) -> None:
        """Enqueue messages of customer `a`."""
        content: Json = {"customer": "a"} if payload is None else payload
        await self.queue.send(spec, [outgoing_message(spec, receipt, content) for receipt in receipts])

    async def receive_one(self, spec: QueueSpec) -> Delivery:
        """Receive the one message that is visible."""
        (delivery,) = await self.queue.receive(spec, 10, LEASE)
        return delivery

    async def receive_one_of(self, spec: QueueSpec) -> Delivery:
        """Receive one message of several."""
        (delivery,) = await self.queue.receive(spec, 1, LEASE)
        return delivery

    async def die(self, spec: QueueSpec, *receipts: str, payload: Json = None) -> None:
        """Enqueue messages and let each become a letter."""
        for receipt in receipts:
            await self.send(spec, receipt, payload=payload)
            assert await self.queue.bury(await self.receive_one(spec), "failed", ERROR, 1)

    async def listed(self, name: str = "orders") -> list[str]:
        """Return the receipts of the letters."""
        return [letter.receipt for letter in await self.letters.list_letters(name, 0, 1000)]

    def url(self, spec: QueueSpec) -> str:
        """Return where a queue is."""
        return self.services.deployment.queue_url(self.services.deployment.queue_name(spec))

    def set_attribute(self, receipt: str, name: str, value: Any) -> None:
        """Edit the item of a message by hand."""
        self.services.clients.dynamodb.update_item(
            TableName=self.services.deployment.table_name,
            Key={"pk": {"S": f"M#{receipt}"}, "sk": {"S": "@"}},
            UpdateExpression="SET #name = :value",
            ExpressionAttributeNames={"#name": name},
            ExpressionAttributeValues={":value": value},
        )

    def letter_url(self, spec: QueueSpec) -> str:
        """Return where a dead-letter queue is."""
        return self.services.deployment.queue_url(self.services.deployment.letter_queue_name(spec))

    def records(self, url: str, *, limit: int = 10, visibility_s: int = 60) -> list[ReceivedRecord]:
        """Receive from a queue as the poller of a Lambda does."""
        answer = self.services.clients.sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=limit,
            VisibilityTimeout=visibility_s,
            MessageSystemAttributeNames=["All"],
        )
        return [
            ReceivedRecord(
                message_id=message["MessageId"],
                handle=message["ReceiptHandle"],
                body=message["Body"],
                receives=int(message["Attributes"]["ApproximateReceiveCount"]),
                group=message["Attributes"].get("MessageGroupId"),
                sent_ms=int(message["Attributes"]["SentTimestamp"]),
                received_ms=self.clock.now_ms(),
            )
            for message in answer.get("Messages", [])
        ]

    def post(self, url: str, body: str, **more: Any) -> None:
        """Send a body as it is."""
        self.services.clients.sqs.send_message(QueueUrl=url, MessageBody=body, **more)

    def waiting(self, url: str) -> list[str]:
        """Return the bodies in a queue, visible or not, oldest first."""
        return [record.body for record in self._all(url)]

    def counted(self, since: int = 0) -> Counter[str]:
        """Return how often each operation was asked for, from a position of `services.calls` on."""
        return Counter(self.services.calls[since:])

    def console_redrive(self, spec: QueueSpec) -> int:
        """Move every letter to the source queue as the console does: same body, new message; return how many."""
        found = self._all(self.letter_url(spec))
        for number, message in enumerate(found):
            more = {"MessageGroupId": message.group_id, "MessageDeduplicationId": f"console{number}.{message.id}"}
            self.post(self.url(spec), message.body, **(more if spec.is_ordered else {}))
        self.services.clients.sqs.purge_queue(QueueUrl=self.letter_url(spec))
        return len(found)

    def _all(self, url: str) -> list[Any]:
        from moto.sqs.models import sqs_backends

        deployment = self.services.deployment
        return list(sqs_backends[deployment.account][deployment.region].queues[url.rsplit("/", 1)[-1]]._messages)


@contextmanager
def open_stage(
    monkeypatch: pytest.MonkeyPatch, *, specs: tuple[QueueSpec, ...] = (), deletes: bool = True, receives: int = 50
) -> Iterator[Stage]:
    """Run a stage until the block ends, with these queues and those that are named on the way."""
    clock = HastyClock()
    with running_services() as services:
        let_sqs_follow(monkeypatch, clock, services.clients, services.deployment)
        queue, letters, reconciler = stage_queues(services, clock, SequenceIds(), deletes=deletes, receives=receives)
        for spec in specs:
            queue.deployed.deploy(spec)
        mishaps = Mishaps()
        for client in (services.clients.dynamodb, services.clients.sqs, services.clients.s3):
            mishaps.watch(client)
        services.calls.clear()
        yield Stage(
            services=services, clock=clock, queue=queue, letters=letters, reconciler=reconciler, mishaps=mishaps
        )
