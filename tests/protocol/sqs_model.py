"""The queue protocol on SQS as values: queue, dead-letter queue, message items, and what each call decides.

Time is absent: a back-off may be of any length, and a visibility may end at any moment after its holder is gone. The
token of a redrive is the number of the SQS message it was sent as; 0 is the token of what was never redriven.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Status = Literal["alive", "dead", "redriven", "discarded"]
Cause = Literal["failed", "receives"]
Stage = Literal["received", "claiming", "used up", "ready", "running", "failed", "burying", "resent", "acknowledging"]


class Copy(NamedTuple):
    """A message in the source queue.

    Attributes:
        message: Which one; stands for the receipt.
        generation: How often it was redriven.
        number: Which SQS message of that receipt it is; 0 is the one that was enqueued.
        token: Of the redrive it comes from.
        receives: SQS's receive count.
        strayed: Whether it is in the FIFO group of its letter instead of its own.
    """

    message: int
    generation: int = 0
    number: int = 0
    token: int = 0
    receives: int = 0
    strayed: bool = False

    def is_same(self, other: Copy) -> bool:
        """Return whether both are the same SQS message, whenever they were received."""
        return self.message == other.message and self.number == other.number


class Letter(NamedTuple):
    """A message in the dead-letter queue: enriched with its death, or plain as SQS moved it.

    Attributes:
        message: Which one.
        generation: The generation that died, or was given up.
        enriched: Whether it tells of its death.
        token: Of a plain one, that of its message. Of an enriched one, the token it was moved back under and left
            behind; 0 before that, for nobody has seen its token yet.
    """

    message: int
    generation: int
    enriched: bool
    token: int = 0

    def is_of(self, other: Letter) -> bool:
        """Return whether both are of the same generation of the same message."""
        return self[:2] == other[:2]


class Item(NamedTuple):
    """The item of a receipt."""

    generation: int
    attempts: int = 0
    status: Status = "alive"
    token: int = 0


class Limits(NamedTuple):
    """How often a message may be tried.

    Attributes:
        attempts: In total.
        receives: The receive that is not run.
        more: Receives beyond that one until SQS moves the message by itself.
    """

    attempts: int
    receives: int
    more: int = 0

    @property
    def native(self) -> int:
        """The receive after which SQS moves the message by itself."""
        return self.receives + self.more


class Found(NamedTuple):
    """What a consumer does next, and with which attempt. `settled`: acknowledge. `recorded`: give the message back."""

    next: Stage | Literal["settled", "recorded"]
    attempt: int = 0


class Protocol:
    """What every call decides. A mistake is a subclass."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def needs_item(self, copy: Copy) -> bool:
        """Return whether the item is read; the first receive of what was never redriven does without."""
        return copy.generation > 0 or copy.receives > 1

    def look(self, copy: Copy, item: Item | None) -> Found:
        """Decide by the item that was read after a receive."""
        if self.is_claimable(copy, item):
            return Found("claiming")
        if item is not None:
            if item.generation > copy.generation or item.status in ("redriven", "discarded"):
                return Found("settled")
            if copy.generation > 0 and (item.generation != copy.generation or not self.is_own(copy, item)):
                return Found("settled")
            if item.status == "dead":
                return self.found_dead()
        return self.try_attempt(copy, item)

    def is_claimable(self, copy: Copy, item: Item | None) -> bool:
        """Return whether a redriven message takes over the item; also the condition of that write."""
        return copy.generation > 0 and (
            item is None or (item.generation < copy.generation and item.status != "discarded")
        )

    def is_own(self, copy: Copy, item: Item) -> bool:
        """Return whether the generation was claimed for the redrive this message comes from."""
        return item.token == copy.token

    def claimed(self, copy: Copy) -> Item:
        """Return the item after a claim."""
        return Item(copy.generation, 0, "alive", copy.token)

    def found_dead(self) -> Found:
        """Decide about a message whose item is dead: whoever wrote that may have died before the letter was put."""
        return Found("burying")

    def try_attempt(self, copy: Copy, item: Item | None) -> Found:
        """Decide between the next attempt and a death."""
        if copy.receives >= self.limits.receives:
            return Found("used up")
        return Found("ready", self.next_attempt(copy, item))

    def next_attempt(self, _copy: Copy, item: Item | None) -> int:
        """Return the number of the next attempt."""
        return 1 if item is None else item.attempts + 1

    def accepts_failure(self, copy: Copy, item: Item | None, attempt: int) -> bool:
        """Return whether the condition of a failure write, or of a death, holds."""
        if item is None:
            return True
        return item.generation == copy.generation and item.status == "alive" and item.attempts < attempt

    def failed(self, copy: Copy, item: Item | None, attempt: int) -> Item:
        """Return the item after the write of a failed attempt, the last one included."""
        status: Status = "dead" if attempt >= self.limits.attempts else "alive"
        token = copy.token if item is None else item.token
        return Item(copy.generation if item is None else item.generation, attempt, status, token)

    def accepts_last_receive(self, copy: Copy, item: Item | None) -> bool:
        """Return whether the condition of a death by receives holds."""
        return item is None or (item.generation == copy.generation and item.status == "alive")

    def received_too_often(self, copy: Copy, item: Item | None) -> Item:
        """Return the item of a message that dies because its receives are used up."""
        return Item(copy.generation, 0 if item is None else item.attempts, "dead", copy.token)

    def refused(self, copy: Copy, item: Item) -> Found:
        """Decide by the item that refused a write."""
        if item.generation > copy.generation or item.status in ("redriven", "discarded"):
            return Found("settled")
        return self.found_dead() if item.status == "dead" else Found("recorded")

    def redriven_generation(self, generation: int) -> int:
        """Return the generation of the message a letter becomes."""
        return generation + 1

    def console_token(self, letter: Letter, number: int) -> int:
        """Return the token of what the AWS console moves back: every enriched letter has one of its own."""
        return letter.token or number if letter.enriched else letter.token

    def reconciled(self, letter: Letter, item: Item | None) -> Literal["keep", "delete", "adopt"]:
        """Decide about a letter in the dead-letter queue. A plain one is kept only while it must be enriched."""
        if self.is_dead(letter, item):
            return "keep"
        if item is None or (not letter.enriched and self._is_next(letter, item)):
            return "adopt"
        return "delete"

    def is_dead(self, letter: Letter, item: Item | None) -> bool:
        """Return whether the item says that the letter's generation is dead."""
        return item is not None and item.generation == letter.generation and item.status == "dead"

    def adopted(self, letter: Letter, item: Item | None) -> Item:
        """Return the item of a letter that nobody wrote one for."""
        same = item is not None and item.generation == letter.generation
        return Item(letter.generation, item.attempts if item is not None and same else 0, "dead", letter.token)

    def _is_next(self, letter: Letter, item: Item) -> bool:
        if item.generation < letter.generation:
            return item.status != "discarded"
        return item.generation == letter.generation and item.status == "alive" and item.token == letter.token
