"""One adapter for each port over the services of one deployed stage."""

# ruff: noqa: PLC0415 - each Lambda starts with what its events need

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from iii_runtime.adapters.aws.blob_store import S3Blobs, S3BlobStore
from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.message_queue import SqsMessageQueue
from iii_runtime.adapters.aws.queue_parts import QueueParts
from iii_runtime.adapters.aws.remote_functions import LambdaFunctions
from iii_runtime.adapters.aws.state_store import DynamoStateStore
from iii_runtime.adapters.aws.table import Table
from iii_runtime.core.queue import QueueSpec
from iii_runtime.engine.stores import Stores
from iii_runtime.plan.names import Deployment
from iii_runtime.ports.clock import Clock, IdSource

if TYPE_CHECKING:
    from iii_runtime.ports.change_feed import ChangeFeed
    from iii_runtime.ports.dead_letter import DeadLetterStore
    from iii_runtime.ports.response_store import ResponseStore
    from iii_runtime.ports.run_store import RunStore
    from iii_runtime.ports.stream_store import StreamStore
    from iii_runtime.ports.tick_store import TickStore
    from iii_runtime.ports.topic_publisher import TopicPublisher

Port = TypeVar("Port")

LONGEST_RUN = timedelta(minutes=15)
"""How long a Lambda can run at most."""


def aws_stores(  # noqa: PLR0913 - one for each thing a host decides
    clients: Clients,
    deployment: Deployment,
    app_queues: Callable[[], Mapping[str, QueueSpec]],
    clock: Clock,
    ids: IdSource,
    *,
    deletes: bool = True,
    via_dispatcher: bool = False,
    reconciles: bool = True,
    max_value_bytes: int | None = None,
    response_lease: timedelta = LONGEST_RUN,
) -> Stores:
    """Return the adapters of a deployed stage. Nothing is asked of the services before the first operation.

    What few functions use is only loaded when it is used: each Lambda starts with what its events need.

    Args:
        clients: Clients of the services.
        deployment: The names of everything.
        app_queues: Returns the queues of the app by name; called when needed.
        clock: Where the time comes from.
        ids: Where identities come from.
        deletes: Whether an acknowledgement deletes the message; else it is noted, see `SqsMessageQueue`.
        via_dispatcher: See `LambdaFunctions`.
        reconciles: Whether a look into the dead-letter queue comes before all letters of a queue are moved; the role of
            a function does not allow it. See `DynamoDeadLetterStore`.
        max_value_bytes: Largest state value, as JSON text; see `DynamoStateStore`.
        response_lease: How long a request with an `Idempotency-Key` is taken to run; longer than its host can.
    """
    table = Table(clients, deployment.table_name, clock)
    blobs = S3Blobs(clients, deployment.bucket_name, clock)
    payloads = S3BlobStore(clients, deployment.bucket_name, clock)
    parts = QueueParts(clients, deployment, table, payloads, clock, ids)

    def letters() -> DeadLetterStore:
        from iii_runtime.adapters.aws.dead_letter_store import DynamoDeadLetterStore
        from iii_runtime.adapters.aws.reconciler import Reconciler

        return DynamoDeadLetterStore(parts, queues=app_queues, reconciler=Reconciler(parts) if reconciles else None)

    def stream() -> StreamStore:
        from iii_runtime.adapters.aws.stream_store import DynamoStreamStore

        return DynamoStreamStore(table, blobs, clock, ids)

    def feed() -> ChangeFeed:
        from iii_runtime.adapters.aws.change_feed import DynamoChangeFeed

        return DynamoChangeFeed(clients, deployment.table_name, blobs, clock)

    def responses() -> ResponseStore:
        from iii_runtime.adapters.aws.response_store import DynamoResponseStore

        return DynamoResponseStore(table, blobs, clock, ids, lease=response_lease)

    def ticks() -> TickStore:
        from iii_runtime.adapters.aws.tick_store import DynamoTickStore

        return DynamoTickStore(table, clock, ids)

    def topics() -> TopicPublisher:
        from iii_runtime.adapters.aws.topic_publisher import SnsTopicPublisher

        return SnsTopicPublisher(clients, deployment, clock)

    def runs() -> RunStore:
        from iii_runtime.adapters.aws.run_payloads import RunPayloads
        from iii_runtime.adapters.aws.run_store import DynamoRunStore
        from iii_runtime.adapters.aws.transactions import Transactions

        return DynamoRunStore(table, Transactions(clients, table, clock, ids), RunPayloads(table, blobs))

    return Stores(
        clock=clock,
        ids=ids,
        queue=SqsMessageQueue(parts, queues=app_queues, deletes=deletes),
        letters=_late(letters),
        state=DynamoStateStore(table, blobs, clock, ids, max_value_bytes=max_value_bytes),
        stream=_late(stream),
        feed=_late(feed),
        blobs=payloads,
        responses=_late(responses),
        ticks=_late(ticks),
        remote=LambdaFunctions(clients, deployment, payloads, ids, via_dispatcher=via_dispatcher),
        topics=_late(topics),
        runs=_late(runs),
        broker="sqs",
    )


class _Late:
    """Stands for an adapter until one of its operations is asked for, which makes it."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make
        self._made: object = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = self._make()
        return getattr(self._made, name)


def _late(make: Callable[[], Port]) -> Port:
    return cast(Port, _Late(make))
