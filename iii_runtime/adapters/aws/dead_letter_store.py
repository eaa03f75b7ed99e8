"""Dead letters as items. The list is the index `letters`; the dead-letter queues of SQS are transport and alarm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.deaths import Deaths
from iii_runtime.adapters.aws.letter_index import LetterIndex, ListedLetter
from iii_runtime.adapters.aws.message_item import MessageItems, Refusal
from iii_runtime.adapters.aws.message_sender import MessageSender, Post, deduplication_id, parts, sqs_word
from iii_runtime.adapters.aws.reconciler import Reconciler
from iii_runtime.adapters.aws.table import Table
from iii_runtime.core.delivery import MessageItem
from iii_runtime.core.errors import StoreError
from iii_runtime.core.letter import body_of_redriven
from iii_runtime.core.letter_transport import REDRIVE_MARK, read_member, travelling, with_token
from iii_runtime.core.message import BlobLink, decode_envelope
from iii_runtime.core.payload import PayloadError
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.regroup import regroup
from iii_runtime.plan.names import Deployment
from iii_runtime.ports.blob_store import BlobStore
from iii_runtime.ports.clock import Clock, IdSource
from iii_runtime.ports.dead_letter import DeadLetter

_PART = 50
_BLOB_HALF_LIFE = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Redrive:
    """A letter on its way back.

    Attributes:
        receipt: The message receipt id.
        generation: The generation that died.
        token: Fresh; whoever claims the next generation with it is this redrive.
        post: What is sent to the source.
    """

    receipt: str
    generation: int
    token: str
    post: Post


class DynamoDeadLetterStore:
    """The dead letters of all queues."""

    def __init__(
        self,
        clients: Clients,
        deployment: Deployment,
        table: Table,
        blobs: BlobStore,
        clock: Clock,
        ids: IdSource,
        *,
        queues: Callable[[], Mapping[str, QueueSpec]],
        reconciler: Reconciler | None,
    ) -> None:
        """Use the letters of a deployment.

        Args:
            clients: Service clients.
            deployment: The names of everything.
            table: The table of the deployment.
            blobs: Where large letters and payloads are.
            clock: The time.
            ids: Tokens of redrives.
            queues: The app's queues by name; asked when needed.
            reconciler: Brings items and dead-letter queues in line before all letters of a queue are moved. None leaves
                that to the minute tick, for a host that may not take messages of dead-letter queues.
        """
        self._deployment = deployment
        self._blobs = blobs
        self._clock = clock
        self._ids = ids
        self._queues = queues
        self._reconciler = reconciler
        self._items = MessageItems(table, clock)
        self._index = LetterIndex(clients, table, clock)
        self._sender = MessageSender(clients, clock)
        self._deaths = Deaths(self._items, self._sender, blobs, deployment, clock, ids)

    async def list_letters(self, queue_name: str, offset: int, limit: int) -> list[DeadLetter]:
        """Return letters of one queue, oldest death first. What has just died may be missing for a moment.

        Raises:
            StoreError: See `failures`; `blob_missing`.
        """
        listed = (await self._index.list(queue_name, limit=offset + limit))[offset:]
        items = await self._index.items([entry.receipt for entry in listed])
        return [
            await self._letter(entry.receipt, items[entry.receipt])
            for entry in listed
            if entry.receipt in items and _is_dead(items[entry.receipt], queue_name)
        ]

    async def count(self, queue_name: str) -> int:
        """Return how many letters `list_letters` would return in all.

        Raises:
            StoreError: See `failures`.
        """
        return await self._index.count(queue_name)

    async def get(self, receipt: str) -> DeadLetter | None:
        """Return one letter of any queue as it is now; None if there is no such letter.

        Raises:
            StoreError: See `failures`; `blob_missing`.
        """
        item = await self._items.read(receipt)
        return await self._letter(receipt, item) if item is not None and item.state == "dead" else None

    async def redrive(self, queue: QueueSpec, receipt: str) -> bool:
        """Send one letter back as a new generation, then take it off the list; False if it is no letter of this queue.

        Killed in between, it is still listed until its message is received. Repeated, the second message is refused by
        the claim of the first.

        Raises:
            StoreError: See `failures`; `blob_missing`. The letter may have been sent, and is listed all the same.
        """
        item = await self._items.read(receipt)
        if item is None or not _is_dead(item, queue.name):
            return False
        redrive = await self._prepare(queue, receipt, item)
        await self._sender.send(self._source(queue), [redrive.post])
        return await self._mark(redrive)

    async def redrive_all(self, queue: QueueSpec) -> int:
        """Redrive the letters present at the start, oldest first; return how many.

        Before that it adopts what SQS has moved to the dead-letter queue by itself; without a reconciler such a letter
        counts once the minute tick has adopted it. It can be repeated after a crash.

        Raises:
            StoreError: See `failures`; `blob_missing`. Those before the refused one were redriven.
        """
        total = 0
        for receipts in await self._present(queue):
            items = await self._index.items(receipts)
            redrives = [
                await self._prepare(queue, receipt, items[receipt])
                for receipt in receipts
                if receipt in items and _is_dead(items[receipt], queue.name)
            ]
            waiting = iter(redrives)
            for part in parts([redrive.post for redrive in redrives]):
                await self._sender.send_part(self._source(queue), part)
                total += sum([await self._mark(next(waiting)) for _ in part])
        return total

    async def discard(self, queue_name: str, receipt: str) -> bool:
        """End one letter for good; False if it is no letter of this queue. The reconciler removes its copy in SQS.

        Raises:
            StoreError: See `failures`.
        """
        item = await self._items.read(receipt)
        if item is None or not _is_dead(item, queue_name):
            return False
        refused = await self._items.end(receipt, item.generation, "discarded")
        return refused is None or _has_ended(refused, item.generation, "discarded")

    async def discard_all(self, queue_name: str) -> int:
        """Discard the letters present at the start, see `redrive_all` for what SQS has moved; return how many.

        Raises:
            StoreError: See `failures`. Those before the refused one were discarded.
        """
        queue = self._queues().get(queue_name, QueueSpec(name=queue_name))
        total = 0
        for receipts in await self._present(queue, is_known=queue_name in self._queues()):
            total += sum([await self.discard(queue_name, receipt) for receipt in receipts])
        return total

    async def _present(self, queue: QueueSpec, *, is_known: bool = True) -> Iterator[Sequence[str]]:
        """Return the receipts of the letters a queue has now, in parts, oldest death first."""
        adopted: Sequence[str] = ()
        if is_known and self._reconciler is not None:
            adopted = (await self._reconciler.reconcile(queue)).receipts
        listed = await self._index.list(queue.name)
        # The index lags behind what was adopted just now.
        missing = set(adopted) - {entry.receipt for entry in listed}
        items = await self._index.items(sorted(missing))
        listed += [ListedLetter(item.died, receipt) for receipt, item in items.items() if _is_dead(item, queue.name)]
        receipts = [entry.receipt for entry in sorted(listed)]
        return (receipts[start : start + _PART] for start in range(0, len(receipts), _PART))

    async def _prepare(self, queue: QueueSpec, receipt: str, item: MessageItem) -> _Redrive:
        letter = await self._deaths.letter_of(item)
        await self._refresh(letter)
        token = REDRIVE_MARK + self._ids.new_id()
        group = regroup(body_of_redriven(letter), receipt, queue)
        return _Redrive(
            receipt=receipt,
            generation=item.generation,
            token=token,
            post=Post(
                body=travelling(with_token(letter, token), item.letter),
                group=None if group is None else sqs_word(group),
                deduplication_id=None if group is None else deduplication_id(receipt, item.generation + 1),
            ),
        )

    async def _refresh(self, letter: str) -> None:
        """Store the payload's blob again if it would not outlive the message: a bucket expires what was not touched."""
        member = read_member(letter)
        if member is None or timedelta(milliseconds=self._clock.now_ms() - member.first_ms) < _BLOB_HALF_LIFE:
            return
        try:
            payload = decode_envelope(letter).payload
        except PayloadError:
            return  # no envelope, so no blob
        if isinstance(payload, BlobLink):
            await self._blobs.put(payload.key, await self._blobs.get(payload.key))

    async def _mark(self, redrive: _Redrive) -> bool:
        """Take a letter off the list whose message was sent; False if another redrive or a discard was first."""
        refused = await self._items.end(redrive.receipt, redrive.generation, "redriven")
        if refused is None or _has_ended(refused, redrive.generation, "redriven"):
            return True
        item = refused.item
        # It may have been received already, before this mark.
        return item is not None and item.generation == redrive.generation + 1 and item.token == redrive.token

    async def _letter(self, receipt: str, item: MessageItem) -> DeadLetter:
        queue = self._queues().get(item.queue or "")
        letter = await self._deaths.letter_of(item)
        return dead_letter(receipt, item, letter, None if queue is None else queue.function_id)

    def _source(self, queue: QueueSpec) -> str:
        return self._deployment.queue_url(self._deployment.queue_name(queue))


def dead_letter(receipt: str, item: MessageItem, letter: str, function_id: str | None) -> DeadLetter:
    """Return a letter as it is listed.

    Args:
        receipt: The message receipt id.
        item: Its item.
        letter: The letter.
        function_id: The only function of its queue, None if each message names its own.

    Raises:
        StoreError: `store_corrupt`: it is no letter.
    """
    member = read_member(letter)
    if member is None:
        raise StoreError(f"the letter of message {receipt} cannot be read.", code="store_corrupt")
    try:
        envelope = decode_envelope(letter)
    except PayloadError:
        function, size = None, len(body_of_redriven(letter))
    else:
        function = function_id or envelope.function_id
        size = envelope.payload.size if isinstance(envelope.payload, BlobLink) else len(envelope.payload)
    return DeadLetter(
        receipt=receipt,
        queue=item.queue or "",
        function_id=function,
        generation=item.generation,
        cause=member.cause,
        error=member.error,
        errors=item.errors,
        attempts=member.attempts,
        receives=member.receives,
        first_ms=member.first_ms,
        failed_ms=member.failed_ms,
        size_bytes=size,
        letter=letter,
    )


def _is_dead(item: MessageItem, queue_name: str) -> bool:
    return item.state == "dead" and item.queue == queue_name


def _has_ended(refused: Refusal, generation: int, state: str) -> bool:
    """Return whether the item is in that state: the reply of this write was lost, or somebody did the same."""
    return refused.item is not None and refused.item.generation == generation and refused.item.state == state
