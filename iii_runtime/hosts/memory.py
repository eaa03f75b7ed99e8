"""Stores without a disk: what is in them is gone with the process."""

from __future__ import annotations

from collections.abc import Callable

from iii_runtime.adapters.memory.blob_store import MemoryBlobStore
from iii_runtime.adapters.memory.change_feed import MemoryChangeFeed
from iii_runtime.adapters.memory.dead_letter_store import MemoryDeadLetterStore
from iii_runtime.adapters.memory.queue_shelf import QueueShelf
from iii_runtime.adapters.memory.queue_store import MemoryMessageQueue
from iii_runtime.adapters.memory.response_store import MemoryResponseStore
from iii_runtime.adapters.memory.run_store import MemoryRunStore
from iii_runtime.adapters.memory.state_store import MemoryStateStore
from iii_runtime.adapters.memory.stream_store import MemoryStreamStore
from iii_runtime.adapters.memory.tick_store import MemoryTickStore
from iii_runtime.engine.stores import Stores
from iii_runtime.ports.clock import Clock, IdSource


def memory_stores(
    clock: Clock,
    ids: IdSource,
    *,
    on_message: Callable[[str], None] = lambda _queue_name: None,
    on_change: Callable[[], None] = lambda: None,
    on_run: Callable[[str], None] = lambda _workflow_id: None,
    max_value_bytes: int | None = None,
) -> Stores:
    """Return one memory adapter for each port, over shared storage.

    Args:
        clock: Where the time comes from.
        ids: Where identities come from.
        on_message: Called with the name of a queue when one of its messages may have become due.
        on_change: Called when the change feed has grown.
        on_run: Called with a workflow id when its run has changed, and may have become due.
        max_value_bytes: Largest state value, as JSON text.
    """
    shelf = QueueShelf(on_message)
    feed = MemoryChangeFeed(on_change)
    return Stores(
        clock=clock,
        ids=ids,
        queue=MemoryMessageQueue(shelf, clock, ids),
        letters=MemoryDeadLetterStore(shelf, clock),
        state=MemoryStateStore(feed, clock, max_value_bytes=max_value_bytes),
        stream=MemoryStreamStore(feed, clock),
        feed=feed,
        blobs=MemoryBlobStore(),
        responses=MemoryResponseStore(clock),
        ticks=MemoryTickStore(),
        runs=MemoryRunStore(feed, clock, on_run),
    )
