"""Queues: messages wait, are received under a lease, and end acknowledged or dead.

Guarantee: at least once. A message is gone only after `acknowledge`, or after it became a dead letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from iii_runtime.core.frozen import frozen
from iii_runtime.core.message import Cause, ErrorRecord
from iii_runtime.core.queue import QueueSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """A message to store.

    Attributes:
        receipt: The message receipt id, chosen by the sender.
        function_id: The function it is for.
        body: The encoded envelope.
        group: FIFO group key, None on a queue that keeps no order.
        delay_ms: How long the message stays invisible.
        dedupe_id: See `TriggerActionEnqueue`.
        blob_key: Blob the body links to, if any; the store keeps it while the message or its letter lives.
    """

    receipt: str
    function_id: str
    body: str
    group: str | None = None
    delay_ms: int = 0
    dedupe_id: str | None = None
    blob_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A received message under its lease.

    Attributes:
        receipt: The message receipt id.
        queue: Name of the queue.
        body: The encoded envelope, or the letter of a redriven message.
        generation: How often the message was redriven.
        attempt: Number of the attempt that starts now, from 1; failures of this generation + 1.
        receives: How often the message was received, this time included; receives that ended in `hide` do not count,
            unless a broker counts for itself.
        handle: Names this very receive; an operation with the handle of an older receive is refused.
        group: FIFO group key, if any.
    """

    receipt: str
    queue: str
    body: str
    generation: int
    attempt: int
    receives: int
    handle: str
    group: str | None = None


@frozen(kw_only=True)
class QueueDepth:
    """How many messages a queue holds. All numbers are exact at one instant, unless `is_exact` is false.

    Attributes:
        visible: Ready to be received (FIFO: messages waiting behind another one included).
        delayed: Waiting for their delay or back-off.
        in_flight: Received, under a lease.
        dead: Dead letters; always equal to the length of their listing.
        is_exact: False where a broker counts for itself: then all but `dead` are estimates, and a message in its
            back-off may count as in flight.
        letters_visible: What such a broker estimates for its own dead-letter queue; None where there is none.
    """

    visible: int
    delayed: int
    in_flight: int
    dead: int
    is_exact: bool = True
    letters_visible: int | None = None


class MessageQueue(Protocol):
    """The messages of all queues."""

    async def prepare(self, queue: QueueSpec) -> None:
        """Group the stored messages of `queue` as it is configured now.

        Called by the only host for each of its queues, at start, after `release_all` and before any `receive`. A queue
        that has become standard, FIFO, or one at a time, since the last start keeps all its messages; where their order
        is known (one queue-wide order, or the group field) it holds from then on.
        """
        ...

    async def send(self, queue: QueueSpec, messages: Sequence[OutgoingMessage]) -> list[str]:
        """Do what `send_all` does, for messages of one queue."""
        ...

    async def send_all(self, messages: Sequence[tuple[QueueSpec, OutgoingMessage]]) -> list[str]:
        """Store messages, each on its queue, in order, all or none, and return their receipts.

        A message whose `dedupe_id` was used within five minutes for the same queue and function is not stored; the
        receipt of the first one is returned in its place.

        Raises:
            StoreError: Nothing was stored. A broker cannot promise that: then the message says what may have been.
        """
        ...

    async def receive(self, queue: QueueSpec, limit: int, lease: timedelta) -> list[Delivery]:
        """Take up to `limit` messages that are due, oldest first, each under a lease.

        On an ordered queue only the oldest message of a group is ever received, and never while it is hidden or held.
        """
        ...

    async def next_due_ms(self, queue: QueueSpec) -> int | None:
        """Return when the next message becomes receivable, Unix milliseconds; None if there is none.

        Held messages count with the end of their lease.
        """
        ...

    async def extend(self, deliveries: Sequence[Delivery], lease: timedelta) -> None:
        """Renew the leases that are still held by these receives."""
        ...

    async def acknowledge(self, delivery: Delivery) -> bool:
        """Remove the message for good. False if the lease was lost: somebody else has it."""
        ...

    async def hide(self, delivery: Delivery, delay: timedelta) -> bool:
        """Give the message back as if it had not been received; receivable again after `delay`.

        Neither an attempt nor the receive counts, however often it happens. False if the lease was lost.
        """
        ...

    async def fail(self, delivery: Delivery, error: ErrorRecord, retry_after: timedelta) -> bool:
        """Record the failed attempt `delivery.attempt` and give the message back for `retry_after`.

        The number is written at most once: a late or repeated failure of the same attempt changes nothing.
        False if the lease was lost.
        """
        ...

    async def bury(self, delivery: Delivery, cause: Cause, error: ErrorRecord, attempts: int) -> bool:
        """Make the message a dead letter, in one step: it is never in both places or in neither.

        `attempts` is the number of failed attempts the letter reports. False if the lease was lost.
        """
        ...

    async def release_all(self) -> int:
        """Void the leases of an earlier process that died; return how many. Called once, at start, by the only host.

        A message is receivable again after `release_delay` of its interruptions, which are receives that recorded no
        failure, and behind what was due before this start.
        """
        ...

    async def depth(self, queue_name: str) -> QueueDepth:
        """Return the counts of one queue, see `QueueDepth`; zeros for a name that was never used."""
        ...

    async def purge(self, queue_name: str) -> int:
        """Delete the messages of a queue that are not in flight; return how many. Dead letters stay."""
        ...

    async def queue_names(self) -> list[str]:
        """Return the sorted names of all queues that hold a message or a dead letter.

        A broker whose queues exist by themselves may name empty ones too: to leave them out, it would have to ask for
        the counts of each. Whoever wants them left out does that, with `depth` or `DeadLetterStore.count`.
        """
        ...
