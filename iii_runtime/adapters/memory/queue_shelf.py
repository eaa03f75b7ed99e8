"""What queues and dead letters share in memory: the messages in the order of their arrival, and the letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from iii_runtime.core.letter import ErrorLog
from iii_runtime.ports.dead_letter import DeadLetter


@dataclass(slots=True, kw_only=True)
class ShelfMessage:
    """A message.

    Attributes:
        visible_at: When it is receivable, or when its lease ends, both in Unix milliseconds.
        taken: How often it was received; the number of the newest receive, which may be holding it.
        uncounted: How many of these receives gave it back as if they had not been.
    """

    seq: int
    queue: str
    group: str | None
    receipt: str
    generation: int
    ready_at: int
    visible_at: int
    first_ms: int
    body: str
    is_held: bool = False
    taken: int = 0
    uncounted: int = 0
    failed: int = 0
    errors: ErrorLog = ()

    @property
    def receives(self) -> int:
        """The receives that count."""
        return self.taken - self.uncounted


@dataclass(slots=True)
class QueueShelf:
    """The messages and the letters of all queues."""

    on_message: Callable[[str], None] = lambda _queue_name: None
    messages: list[ShelfMessage] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    last_seq: int = 0

    def add(
        self, *, queue: str, group: str | None, receipt: str, generation: int, ready_at: int, first_ms: int, body: str
    ) -> None:
        """Add a message at the end."""
        self.last_seq += 1
        self.messages.append(
            ShelfMessage(
                seq=self.last_seq,
                queue=queue,
                group=group,
                receipt=receipt,
                generation=generation,
                ready_at=ready_at,
                visible_at=ready_at,
                first_ms=first_ms,
                body=body,
            )
        )

    def of(self, queue_name: str) -> list[ShelfMessage]:
        """Return the messages of a queue, oldest first."""
        return [message for message in self.messages if message.queue == queue_name]

    def heads(self, queue_name: str) -> list[ShelfMessage]:
        """Return the messages of a queue that wait for no other one."""
        first: dict[str, ShelfMessage] = {}
        for message in self.of(queue_name):
            if message.group is not None:
                first.setdefault(message.group, message)
        return [message for message in self.of(queue_name) if message.group is None or first[message.group] is message]
