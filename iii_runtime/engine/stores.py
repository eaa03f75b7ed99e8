"""The ports an engine works on, in one value."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from iii_runtime.core.frozen import frozen
from iii_runtime.ports.meter import Meter, NoMeter

if TYPE_CHECKING:  # a host that starts anew for each event loads the ports it uses
    from iii_runtime.ports.blob_store import BlobStore
    from iii_runtime.ports.change_feed import ChangeFeed
    from iii_runtime.ports.clock import Clock, IdSource
    from iii_runtime.ports.dead_letter import DeadLetterStore
    from iii_runtime.ports.message_queue import MessageQueue
    from iii_runtime.ports.remote_functions import RemoteFunctions
    from iii_runtime.ports.response_store import ResponseStore
    from iii_runtime.ports.run_store import RunStore
    from iii_runtime.ports.state_store import StateStore
    from iii_runtime.ports.stream_store import StreamStore
    from iii_runtime.ports.tick_store import TickStore
    from iii_runtime.ports.topic_publisher import TopicPublisher


@frozen(kw_only=True)
class Stores:
    """One adapter for each port, all over the same storage.

    Attributes:
        runs: Durable runs; None where there are none.
        remote: How to call functions with a host of their own; None if all run in this process.
        topics: The broker of durable topics; None if a publish stores the messages of all subscriptions itself.
        meter: Where measurements go.
        broker: What listings call the queues' broker.
    """

    clock: Clock
    ids: IdSource
    queue: MessageQueue
    letters: DeadLetterStore
    state: StateStore
    stream: StreamStore
    feed: ChangeFeed
    blobs: BlobStore
    responses: ResponseStore
    ticks: TickStore
    runs: RunStore | None = None
    remote: RemoteFunctions | None = None
    topics: TopicPublisher | None = None
    meter: Meter = field(default_factory=NoMeter)
    broker: str = "embedded"
