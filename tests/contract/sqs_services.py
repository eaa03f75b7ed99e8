"""Queues and dead letters on SQS in memory; a queue is deployed when a test first names it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from iii_runtime.adapters.aws.blob_store import S3BlobStore
from iii_runtime.adapters.aws.dead_letter_store import DynamoDeadLetterStore
from iii_runtime.adapters.aws.message_queue import SqsMessageQueue
from iii_runtime.adapters.aws.queue_parts import QueueParts
from iii_runtime.adapters.aws.reconciler import Reconciler
from iii_runtime.adapters.aws.table import Table
from iii_runtime.core.queue import QueueSpec
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.message_queue import Delivery, OutgoingMessage
from tests.contract.aws_services import Services, create_queues


class DeployedQueues(dict[str, QueueSpec]):
    """The queues of a stage by name, with those that are added on the way."""

    def __init__(self, services: Services, *, receives: int = 50) -> None:
        super().__init__()
        self._services = services
        self._receives = receives
        self._created: set[str] = set()

    def deploy(self, queue: QueueSpec) -> None:
        """Create the queue in SQS, unless it is there; from now on its name means this one."""
        self[queue.name] = queue
        name = self._services.deployment.queue_name(queue)
        if name not in self._created:
            self._created.add(name)
            create_queues(self._services.clients, self._services.deployment, [queue], receives=self._receives)


class StageQueue(SqsMessageQueue):
    """Deploys a queue when it is first used."""

    deployed: DeployedQueues

    async def prepare(self, queue: QueueSpec) -> None:
        self.deployed.deploy(queue)
        await super().prepare(queue)

    async def send_all(self, messages: Sequence[tuple[QueueSpec, OutgoingMessage]]) -> list[str]:
        for queue, _ in messages:
            self.deployed.deploy(queue)
        return await super().send_all(messages)

    async def receive(self, queue: QueueSpec, limit: int, lease: timedelta) -> list[Delivery]:
        self.deployed.deploy(queue)
        return await super().receive(queue, limit, lease)


class StageLetters(DynamoDeadLetterStore):
    """Deploys a queue when it is first used."""

    deployed: DeployedQueues

    async def redrive_all(self, queue: QueueSpec) -> int:
        self.deployed.deploy(queue)
        return await super().redrive_all(queue)


def stage_queues(
    services: Services, clock: Clock, ids: IdSource, *, deletes: bool = True, receives: int = 50
) -> tuple[StageQueue, StageLetters, Reconciler]:
    """Return the ports of queues over the services, and what keeps their dead-letter queues in line."""
    clients, deployment = services.clients, services.deployment
    table = Table(clients, deployment.table_name, clock)
    blobs = S3BlobStore(clients, deployment.bucket_name, clock)
    deployed = DeployedQueues(services, receives=receives)
    parts = QueueParts(clients, deployment, table, blobs, clock, ids)
    reconciler = Reconciler(parts, wait_s=0)
    queue = StageQueue(parts, queues=lambda: deployed, deletes=deletes)
    letters = StageLetters(parts, queues=lambda: deployed, reconciler=reconciler)
    queue.deployed = letters.deployed = deployed
    return queue, letters, reconciler
