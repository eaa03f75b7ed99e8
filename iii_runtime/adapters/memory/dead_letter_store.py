"""Dead letters in a list."""

from __future__ import annotations

from iii_runtime.adapters.memory.queue_shelf import QueueShelf
from iii_runtime.core.letter import body_of_redriven
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.regroup import regroup
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.dead_letter import DeadLetter


class MemoryDeadLetterStore:
    """The dead letters of all queues, on the shelf of their messages."""

    def __init__(self, shelf: QueueShelf, clock: Clock) -> None:
        self._shelf = shelf
        self._clock = clock

    async def list_letters(self, queue_name: str, offset: int, limit: int) -> list[DeadLetter]:
        """Return letters of one queue, oldest death first."""
        return self._of(queue_name)[offset : offset + limit]

    async def count(self, queue_name: str) -> int:
        """Return how many letters `list_letters` would return in all."""
        return len(self._of(queue_name))

    async def get(self, receipt: str) -> DeadLetter | None:
        """Return one letter of any queue; None if there is no such letter now."""
        return next((letter for letter in self._shelf.letters if letter.receipt == receipt), None)

    async def redrive(self, queue: QueueSpec, receipt: str) -> bool:
        """Put one letter back as a new generation; False if it is no letter of this queue."""
        letter = await self.get(receipt)
        if letter is None or letter.queue != queue.name:
            return False
        body = body_of_redriven(letter.letter)
        self._shelf.letters.remove(letter)
        self._shelf.add(
            queue=queue.name,
            group=regroup(body, receipt, queue),
            receipt=receipt,
            generation=letter.generation + 1,
            ready_at=self._clock.now_ms(),
            first_ms=letter.first_ms,
            body=body,
        )
        self._shelf.on_message(queue.name)
        return True

    async def redrive_all(self, queue: QueueSpec) -> int:
        """Redrive the letters present at the start, oldest first; return how many."""
        return sum([await self.redrive(queue, letter.receipt) for letter in self._of(queue.name)])

    async def discard(self, queue_name: str, receipt: str) -> bool:
        """End one letter for good; False if it is no letter of this queue."""
        letter = await self.get(receipt)
        if letter is None or letter.queue != queue_name:
            return False
        self._shelf.letters.remove(letter)
        return True

    async def discard_all(self, queue_name: str) -> int:
        """Discard the letters present at the start; return how many."""
        return sum([await self.discard(queue_name, letter.receipt) for letter in self._of(queue_name)])

    def _of(self, queue_name: str) -> list[DeadLetter]:
        return [letter for letter in self._shelf.letters if letter.queue == queue_name]
