"""Dead letters as items. The list is the index `letters`; the dead-letter queues of SQS are transport and alarm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from iii_runtime.adapters.aws.letter_index import ListedLetter
from iii_runtime.adapters.aws.listed_letters import dead_letter, leaving, unreadable_letter
from iii_runtime.adapters.aws.message_item import Refusal
from iii_runtime.adapters.aws.message_sender import Post, deduplication_id, parts, sqs_word
from iii_runtime.adapters.aws.queue_parts import QueueParts
from iii_runtime.adapters.aws.reconciler import Reconciler
from iii_runtime.core.delivery import MessageItem
from iii_runtime.core.errors import IiiError, StoreError
from iii_runtime.core.letter import DAMAGES, LettersLeftError, body_of_redriven, damage_of, incomplete
from iii_runtime.core.letter_transport import REDRIVE_MARK, read_member, travelling, with_token
from iii_runtime.core.message import BlobLink, DeadLetterMember, decode_envelope
from iii_runtime.core.payload import PayloadError
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.regroup import regroup
from iii_runtime.ports.dead_letter import DeadLetter

_PART = 50

RENEWED_AFTER = timedelta(days=12)
"""How old a payload may be that is sent once more without being stored again.

The bucket keeps it for 60 days. The message may wait for 14, be received at the very end of that and run or be hidden
for half a day, and its letter is listed for 30 days and until the table has removed it, two or three days later.
"""


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
        self, parts: QueueParts, *, queues: Callable[[], Mapping[str, QueueSpec]], reconciler: Reconciler | None
    ) -> None:
        """Use the letters of a deployment.

        Args:
            parts: What the queues share.
            queues: The app's queues by name; asked when needed.
            reconciler: Brings items and dead-letter queues in line before all letters of a queue are moved. None leaves
                that to the minute tick, for a host that may not take messages of dead-letter queues.
        """
        self._parts = parts
        self._items, self._index = parts.items, parts.letters
        self._queues = queues
        self._reconciler = reconciler

    async def list_letters(self, queue_name: str, offset: int, limit: int) -> list[DeadLetter]:
        """Return letters of one queue, oldest death first. What has just died may be missing for a moment.

        One that cannot be read is listed with the reason as its error.

        Raises:
            StoreError: See `failures`.
        """
        listed = (await self._index.list(queue_name, limit=offset + limit))[offset:]
        items = await self._index.items([entry.receipt for entry in listed])
        return [
            await self._listed(queue_name, entry, items[entry.receipt])
            for entry in listed
            if _may_be_dead(items.get(entry.receipt), queue_name)
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
            StoreError: See `failures`; `blob_missing`, `store_corrupt`: it cannot be read; says what to do.
        """
        item = await self._items.read(receipt)
        return await self._letter(receipt, item) if item is not None and item.state == "dead" else None

    async def redrive(self, queue: QueueSpec, receipt: str) -> bool:
        """Send one letter back as a new generation, then take it off the list; False if it is no letter of this queue.

        Killed in between, it is still listed until its message is received. Repeated, the second message is refused by
        the claim of the first.

        Raises:
            StoreError: See `failures`: the letter may have been sent, and is listed all the same. `blob_missing`,
                `store_corrupt`: it, or its payload, is gone or damaged; it stays.
        """
        item = await self._items.read(receipt)
        if item is None or not _is_dead(item, queue.name):
            return False
        redrive = await self._prepare(queue, receipt, item)
        await self._parts.sender.send(self._parts.url(queue), [redrive.post])
        return await self._mark(redrive)

    async def redrive_all(self, queue: QueueSpec) -> int:
        """Redrive the letters present at the start, oldest first; return how many.

        Before that it adopts what SQS has moved to the dead-letter queue by itself; without a reconciler such a letter
        counts once the minute tick has adopted it. It can be repeated after a crash.

        Raises:
            LettersLeftError: Some are not complete, and stay. All others were redriven.
            StoreError: See `failures`. Those before the refused one were redriven.
        """
        total = 0
        left: dict[str, StoreError] = {}
        for receipts in await self._present(queue):
            redrives = await self._prepare_all(queue, receipts, left)
            waiting = iter(redrives)
            for part in parts([redrive.post for redrive in redrives]):
                await self._parts.sender.send_part(self._parts.url(queue), part)
                total += sum([await self._mark(next(waiting)) for _ in part])
        if left:
            raise LettersLeftError(queue.name, "redriven", total, left)
        return total

    async def discard(self, queue_name: str, receipt: str) -> bool:
        """End one letter for good; False if it is no letter of this queue. The reconciler removes its copy in SQS.

        One whose item cannot be read is a letter of the queue that lists it.

        Raises:
            StoreError: See `failures`.
        """
        try:
            item = await self._items.read(receipt)
        except StoreError as error:
            if error.code not in DAMAGES:
                raise
            return await self._items.discard_damaged(receipt, queue_name)
        if item is None or not _is_dead(item, queue_name):
            return False
        refused = await self._items.end(receipt, item.generation, "discarded")
        return refused is None or _has_ended(refused, item.generation, "discarded")

    async def discard_all(self, queue_name: str) -> int:
        """Discard the letters present at the start, see `redrive_all` for what SQS has moved; return how many.

        Raises:
            LettersLeftError: Some are damaged in a way that lets nobody discard them. All others were discarded.
            StoreError: See `failures`. Those before the refused one were discarded.
        """
        queue = self._queues().get(queue_name, QueueSpec(name=queue_name))
        total = 0
        left: dict[str, StoreError] = {}
        for receipts in await self._present(queue, is_known=queue_name in self._queues()):
            for receipt in receipts:
                with leaving(left, receipt):
                    total += await self.discard(queue_name, receipt)
        if left:
            raise LettersLeftError(queue_name, "discarded", total, left)
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
        listed += [
            ListedLetter(item.died, receipt)
            for receipt, item in items.items()
            if isinstance(item, MessageItem) and _is_dead(item, queue.name)
        ]
        receipts = [entry.receipt for entry in sorted(listed)]
        return (receipts[start : start + _PART] for start in range(0, len(receipts), _PART))

    async def _prepare_all(
        self, queue: QueueSpec, receipts: Sequence[str], left: dict[str, StoreError]
    ) -> list[_Redrive]:
        """Return the redrives of the letters among these that are complete; add to `left` what is wrong with others."""
        redrives: list[_Redrive] = []
        items = await self._index.items(receipts)
        for receipt in receipts:
            item = items.get(receipt)
            with leaving(left, receipt):
                if isinstance(item, StoreError):
                    raise item
                if item is not None and _is_dead(item, queue.name):
                    redrives.append(await self._prepare(queue, receipt, item))
        return redrives

    async def _prepare(self, queue: QueueSpec, receipt: str, item: MessageItem) -> _Redrive:
        letter, _ = await self._read(receipt, item)
        try:
            await self._renew(letter)
        except StoreError as error:
            raise (incomplete(receipt, queue.name, error) if error.code in DAMAGES else error) from error
        token = REDRIVE_MARK + self._parts.ids.new_id()
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

    async def _renew(self, letter: str) -> None:
        """Read the payload's blob, if there is one, and store it again if it would not outlive the next letter.

        Raises:
            StoreError: `blob_missing`: sent without its payload the message could only die again.
        """
        try:
            envelope = decode_envelope(letter)
        except PayloadError:
            return  # no envelope, so no blob
        if not isinstance(envelope.payload, BlobLink):
            return
        text = await self._parts.blobs.get(envelope.payload.key)
        if timedelta(milliseconds=self._parts.clock.now_ms() - envelope.accepted_ms) >= RENEWED_AFTER:
            await self._parts.blobs.put(envelope.payload.key, text)

    async def _mark(self, redrive: _Redrive) -> bool:
        """Take a letter off the list whose message was sent; False if another redrive or a discard was first."""
        refused = await self._items.end(redrive.receipt, redrive.generation, "redriven")
        if refused is None or _has_ended(refused, redrive.generation, "redriven"):
            return True
        item = refused.item
        # It may have been received already, before this mark.
        return item is not None and item.generation == redrive.generation + 1 and item.token == redrive.token

    async def _listed(self, queue_name: str, entry: ListedLetter, item: MessageItem | StoreError) -> DeadLetter:
        if isinstance(item, StoreError):
            return unreadable_letter(entry.receipt, queue_name, entry.died, None, item)
        try:
            return await self._letter(entry.receipt, item)
        except (IiiError, ValueError) as error:
            if isinstance(error, StoreError) and error.code not in DAMAGES:
                raise
            return unreadable_letter(entry.receipt, queue_name, entry.died, item, damage_of(error))

    async def _letter(self, receipt: str, item: MessageItem) -> DeadLetter:
        queue = self._queues().get(item.queue or "")
        letter, member = await self._read(receipt, item)
        return dead_letter(receipt, item, letter, member, None if queue is None else queue.function_id)

    async def _read(self, receipt: str, item: MessageItem) -> tuple[str, DeadLetterMember]:
        try:
            letter = await self._parts.deaths.letter_of(item)
        except StoreError as error:
            raise (incomplete(receipt, item.queue or "", error) if error.code in DAMAGES else error) from error
        member = read_member(letter)
        if member is None:
            damage = StoreError("its text is damaged. Restore the item.", code="store_corrupt")
            raise incomplete(receipt, item.queue or "", damage)
        return letter, member


def _is_dead(item: MessageItem, queue_name: str) -> bool:
    return item.state == "dead" and item.queue == queue_name


def _may_be_dead(item: MessageItem | StoreError | None, queue_name: str) -> bool:
    """Return whether a listed letter is one: an item that cannot be read is what its keys in the index say."""
    return isinstance(item, StoreError) or (item is not None and _is_dead(item, queue_name))


def _has_ended(refused: Refusal, generation: int, state: str) -> bool:
    """Return whether the item is in that state: the reply of this write was lost, or somebody did the same."""
    return refused.item is not None and refused.item.generation == generation and refused.item.state == state
