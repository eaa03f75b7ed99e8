"""Dead letters: list, show, redrive, discard. The listing hides nothing, locks nobody out and equals the count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from iii_runtime.core.message import Cause, ErrorRecord
from iii_runtime.core.queue import QueueSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A message that ended undelivered.

    Attributes:
        receipt: The message receipt id, the same as on enqueue.
        queue: Name of the queue.
        function_id: The function it was for; None if the body was unreadable, or the letter is.
        generation: How often it had been redriven.
        cause: Why it died; `unreadable` as well if the letter is.
        error: The last error; of a letter that is unreadable, why it is.
        errors: The last three failed attempts, oldest first, as `(attempt, error)`.
        attempts: Failed attempts of this generation.
        receives: Receives of this generation.
        first_ms: When it was enqueued, Unix milliseconds.
        failed_ms: When it died, Unix milliseconds.
        size_bytes: Size of the payload.
        letter: The enqueued body byte for byte with its `dead_letter` member; empty if that is gone from the store, or
            damaged.
    """

    receipt: str
    queue: str
    function_id: str | None
    generation: int
    cause: Cause
    error: ErrorRecord
    errors: tuple[tuple[int, ErrorRecord], ...]
    attempts: int
    receives: int
    first_ms: int
    failed_ms: int
    size_bytes: int
    letter: str


class DeadLetterStore(Protocol):
    """The dead letters of all queues."""

    async def list_letters(self, queue_name: str, offset: int, limit: int) -> list[DeadLetter]:
        """Return letters of one queue, oldest death first, in a stable order; a damaged one hides no other."""
        ...

    async def count(self, queue_name: str) -> int:
        """Return how many letters `list_letters` would return in all."""
        ...

    async def get(self, receipt: str) -> DeadLetter | None:
        """Return one letter, at any position of any queue; None if there is no such letter now.

        Raises:
            StoreError: `blob_missing`, `store_corrupt`: it is not complete; says what to do.
        """
        ...

    async def redrive(self, queue: QueueSpec, receipt: str) -> bool:
        """Put one letter of `queue` back as a new generation, its attempts starting at 1; False if it is no letter.

        On an ordered queue it goes to the end of its group. The move is one step; repeating it does nothing.

        Raises:
            StoreError: `blob_missing`, `store_corrupt`: it is not complete, and stays; says what to do.
        """
        ...

    async def redrive_all(self, queue: QueueSpec) -> int:
        """Redrive the letters present at the start, oldest first; return how many.

        Raises:
            LettersLeftError: Some are not complete, and stay. All others were redriven.
        """
        ...

    async def discard(self, queue_name: str, receipt: str) -> bool:
        """End one letter of the queue for good; False if it is no letter of this queue."""
        ...

    async def discard_all(self, queue_name: str) -> int:
        """Discard the letters present at the start; return how many.

        Raises:
            LettersLeftError: What is known of some is damaged, and they stay. All others were discarded.
        """
        ...
