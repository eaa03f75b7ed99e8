"""What happened in a run on the simulator, as the model sees it; and whether the model can do the same.

After each request to AWS, and after each step of the queue itself, a view of the world is taken: what is in the queue
and in the dead-letter queue, and what the items say. Between two views stand what functions did: started with an
attempt, succeeded, failed. A trace is a path of the model if moves of the model lead from view to view, one move that
changes the view for each, and the functions do there what they did here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from iii_runtime.core.delivery import Incoming, read_incoming
from iii_runtime.plan.app_plan import PlannedQueue
from tests.aws.calls import Answered, Call, Reply, watched_by
from tests.aws.invocations import Invocation
from tests.aws.simulator import Simulator
from tests.aws.sqs_queue import FaithfulMessage
from tests.protocol.sqs_delivery import SqsDeliveries
from tests.protocol.sqs_history import World
from tests.protocol.sqs_model import Copy, Item, Letter, Status

_VISIBLE = frozenset({"start", "succeed", "fail"})


class View(NamedTuple):
    """What can be seen of a world from outside of the consumers."""

    source: tuple[Copy, ...]
    letters: frozenset[Letter]
    items: tuple[Item | None, ...]


class Did(NamedTuple):
    """What a function did. The attempt is 0 but for a start."""

    what: Literal["start", "succeed", "fail"]
    message: int
    attempt: int = 0


Event: TypeAlias = View | Did


def view_of(world: World, *, fifo: bool) -> View:
    """Return what can be seen of a world of the model. Of tokens, those that decide: of living redriven messages."""
    source = world.source if fifo else tuple(sorted(world.source))
    items = tuple(None if item is None else _shown(item) for item in world.items)
    return View(source, world.letters, items)


@dataclass(slots=True)
class Trace:
    """Sees every request of every handler, and writes the trace of one queue.

    Args:
        simulator: What runs.
        queue: The queue.
        receipts: Receipts of its messages, in the order of their sends.

    Attributes:
        events: The trace.
    """

    simulator: Simulator
    queue: PlannedQueue
    receipts: list[str]
    events: list[Event] = field(default_factory=list)
    _numbers: dict[str, tuple[int, int]] = field(default_factory=dict)
    _tokens: dict[str, int] = field(default_factory=dict)
    _pending: list[Any] = field(default_factory=list)

    def begin(self) -> None:
        """Take the first view, of the messages that have just been sent."""
        self.simulator.cloud.queue(self.queue.name).on_change = self.look
        self.look()

    def before(self, _invocation: Invocation, _call: Call) -> Answered | None:
        """Let it be sent."""
        return None

    def after(self, _invocation: Invocation, _call: Call, _reply: Reply) -> None:
        """Take a view after a request."""
        self.look()

    def ends(self, _invocation: Invocation) -> None:
        """Take no note."""

    def did(self, what: Literal["start", "succeed", "fail"], receipt: str, attempt: int = 0) -> None:
        """Note what a function did."""
        self.events.append(Did(what, self.receipts.index(receipt), attempt))

    def look(self) -> None:
        """Take a view, if anything has changed."""
        view = self._view()
        if not self.events or view != next((event for event in self.events[::-1] if isinstance(event, View)), None):
            self.events.append(view)

    def _view(self) -> View:
        cloud = self.simulator.cloud
        source = tuple(self._copy(message) for message in cloud.queue(self.queue.name).held)
        letters = frozenset(self._letter(message) for message in cloud.queue(self.queue.letter_name).held)
        with watched_by(None):
            items = tuple(self._item(cloud.item({"pk": f"M#{receipt}", "sk": "@"})) for receipt in self.receipts)
        return View(source if self.queue.spec.is_ordered else tuple(sorted(source)), letters, items)

    def _copy(self, message: FaithfulMessage) -> Copy:
        incoming = self._incoming(message)
        index, number = self._number(message, incoming)
        is_ordered = self.queue.spec.is_ordered
        strayed = is_ordered and incoming.generation > 0 and message.group_id == incoming.receipt
        token = self._token(incoming.token, number)
        return Copy(index, incoming.generation, number, token, message.approximate_receive_count, strayed)

    def _letter(self, message: FaithfulMessage) -> Letter:
        incoming = self._incoming(message)
        index = self.receipts.index(incoming.receipt)
        if message.moved_from is None:
            token = self._tokens.get(incoming.token or "", 0)
            return Letter(index, incoming.generation - 1, enriched=True, token=token)
        return Letter(index, incoming.generation, enriched=False, token=self._token(incoming.token, 0))

    def _item(self, stored: dict[str, Any] | None) -> Item | None:
        if stored is None:
            return None
        status: Status = stored["st"]["S"] if "st" in stored else "alive"
        token = self._token(stored["tok"]["S"] if "tok" in stored else None, 0)
        return _shown(Item(int(stored["g"]["N"]), int(stored["n"]["N"]), status, token))

    def _incoming(self, message: FaithfulMessage) -> Incoming:
        return read_incoming(message.body, message.id, self.queue.spec)

    def _number(self, message: FaithfulMessage, incoming: Incoming) -> tuple[int, int]:
        if message.id not in self._numbers:
            index = self.receipts.index(incoming.receipt)
            count = sum(known == index for known, _ in self._numbers.values())
            self._numbers[message.id] = (index, count)
        return self._numbers[message.id]

    def _token(self, token: str | None, number: int) -> int:
        """Return the number of the SQS message that first had a token."""
        return 0 if token is None else self._tokens.setdefault(token, number)


class AnyRedrive(SqsDeliveries):
    """Deliveries where every letter may be redriven, again and again: a run ends, and a search would not."""

    def may_redrive(self, _world: World, _item: Item) -> bool:
        """Return that it may."""
        return True

    def may_move(self, _letter: Letter) -> bool:
        """Return that it may."""
        return True


class Difference(NamedTuple):
    """Where a trace leaves the model: the events so far, and the one that the model cannot follow."""

    before: tuple[Event, ...]
    event: Event


def leaves_the_model(events: list[Event], deliveries: SqsDeliveries) -> Difference | None:
    """Return where a trace leaves the model, None if it is a path of it."""
    fifo = deliveries.scenario.fifo
    worlds = {deliveries.first()}
    if view_of(deliveries.first(), fifo=fifo) != events[0]:
        return Difference((), events[0])
    for place, event in enumerate(events[1:], start=1):
        worlds = set(_after(event, _unseen(worlds, deliveries), deliveries))
        if not worlds:
            return Difference(tuple(events[max(0, place - 12) : place]), event)
    return None


def _after(event: Event, worlds: set[World], deliveries: SqsDeliveries) -> Iterator[World]:
    """Yield the worlds that one seen move leads to."""
    fifo = deliveries.scenario.fifo
    for world in worlds:
        for label, _, moved in deliveries.moves(world):
            is_own = label[0] in _VISIBLE
            if isinstance(event, Did):
                if is_own and _is_same(label, event):
                    yield deliveries.canonical(moved)
            elif not is_own and view_of(moved, fifo=fifo) == event:
                yield deliveries.canonical(moved)


def _unseen(worlds: set[World], deliveries: SqsDeliveries) -> set[World]:
    """Return the worlds that moves nobody sees lead to, and those they start from."""
    fifo = deliveries.scenario.fifo
    found, todo = set(worlds), list(worlds)
    while todo:
        world = todo.pop()
        seen = view_of(world, fifo=fifo)
        for label, _, moved in deliveries.moves(world):
            if label[0] in _VISIBLE or view_of(moved, fifo=fifo) != seen:
                continue
            settled = deliveries.canonical(moved)
            if settled not in found:
                found.add(settled)
                todo.append(settled)
    return found


def _is_same(label: tuple[object, ...], did: Did) -> bool:
    if label[0] != did.what:
        return False
    message, attempt = (label[2], label[1]) if did.what == "start" else (label[1], 0)
    return (message, attempt) == (did.message, did.attempt)


def _shown(item: Item) -> Item:
    is_claim = item.status == "alive" and item.generation > 0
    return item if is_claim else item._replace(token=0)
