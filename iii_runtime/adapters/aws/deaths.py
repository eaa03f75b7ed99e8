"""How a message dies: first its item says so, then its letter goes to the dead-letter queue, then it is acknowledged.

A crash between two of them is made good by the next receive, which finds the item dead.
"""

from __future__ import annotations

from iii_runtime.adapters.aws.linked_text import linked_text, store_text
from iii_runtime.adapters.aws.message_item import MessageItems
from iii_runtime.adapters.aws.message_sender import MessageSender, Post, deduplication_id, sqs_word
from iii_runtime.core.delivery import MessageItem, decide_standing
from iii_runtime.core.letter import Death, compose_letter
from iii_runtime.core.letter_transport import travelling, with_token
from iii_runtime.core.message import BlobLink, ErrorRecord
from iii_runtime.core.queue import QueueSpec
from iii_runtime.plan.names import Deployment
from iii_runtime.ports.blob_store import BlobStore
from iii_runtime.ports.clock import Clock, IdSource

INLINE_LETTER = 32 * 1024
"""Largest letter kept in the item itself."""


class Deaths:
    """Writes deaths and puts letters."""

    def __init__(
        self,
        items: MessageItems,
        sender: MessageSender,
        blobs: BlobStore,
        deployment: Deployment,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._items = items
        self._sender = sender
        self._blobs = blobs
        self._deployment = deployment
        self._clock = clock
        self._ids = ids
        self._last_place = 0

    async def record(
        self, death: Death, body: str, failure: ErrorRecord | None
    ) -> tuple[MessageItem | None, str | None]:
        """Write that a message is dead. From then on it is listed.

        Args:
            death: What is known of it.
            body: Its body.
            failure: The error of attempt `death.attempts`, if that one is not counted yet.

        Returns:
            The item and, if it was written here, its letter. The item is one of an earlier writer if the message is
            dead already; in any other state it says why nothing was written.

        Raises:
            StoreError: See `failures`.
        """
        letter = compose_letter(body, death).text
        item = await self._item(death, letter)
        refused = await self._items.record_death(death.receipt, item, failure=failure)
        if refused is not None and decide_standing(refused.item, death.generation) == "recorded":
            # Somebody else has counted this attempt, and not the end: it is the last one all the same.
            refused = await self._items.record_death(death.receipt, item, failure=None)
        return (item, letter) if refused is None else (refused.item, None)

    async def adopt(self, death: Death, letter: str, seen: MessageItem | None, token: str | None) -> MessageItem | None:
        """Write the death of a message that the broker gave up, with this letter; None if its item has changed.

        Args:
            death: What is known of it.
            letter: Its letter.
            seen: The item as it was read.
            token: Token of the redrive the message came from, if any.

        Raises:
            StoreError: See `failures`.
        """
        item = await self._item(death, letter, token)
        return item if await self._items.adopt(death.receipt, item, seen) else None

    async def put(self, queue: QueueSpec, receipt: str, item: MessageItem, letter: str | None = None) -> None:
        """Put the letter of a dead message on the dead-letter queue. Repeated, it may be there twice.

        Args:
            queue: The queue the message died in.
            receipt: Its receipt.
            item: Its item.
            letter: Its letter, under a token that was not used yet; by default that of the item under a fresh one.

        Raises:
            StoreError: See `failures`.
        """
        text = letter or with_token(await self.letter_of(item), self._ids.new_id())
        post = Post(
            body=travelling(text, item.letter),
            group=sqs_word(receipt) if queue.is_ordered else None,
            deduplication_id=deduplication_id(receipt, item.generation, "d") if queue.is_ordered else None,
        )
        await self._sender.send(self._deployment.queue_url(self._deployment.letter_queue_name(queue)), [post])

    async def letter_of(self, item: MessageItem) -> str:
        """Return the letter of a dead message.

        Raises:
            StoreError: `blob_missing`, `store_corrupt`; else see `failures`.
        """
        return await linked_text(self._blobs, item.letter) if isinstance(item.letter, BlobLink) else item.letter or ""

    async def _item(self, death: Death, letter: str, token: str | None = None) -> MessageItem:
        stored: str | BlobLink = letter
        if len(letter) > INLINE_LETTER:
            key = f"{death.receipt}-{death.generation}-{death.token}"
            stored = await store_text(self._blobs, key, letter)
        return MessageItem(
            generation=death.generation,
            token=token,
            failed=death.attempts,
            state="dead",
            letter=stored,
            queue=death.queue,
            died=self._place(death.failed_ms),
        )

    def _place(self, failed_ms: int) -> int:
        """Return a place in the order of deaths, after all those given here: several may die in one millisecond."""
        self._last_place = max(failed_ms * 1000, self._last_place + 1)
        return self._last_place
