"""Runs of one workflow id: executors, and everybody around them. All moves of one scenario.

A client may stop for ever between any two of its requests. The queue offers a message until it is acknowledged, to
several executors at once; a start message may even come back after that. The sweep sends a wake while the record has
`wake_at`, and may send one at any other time, because it reads an index that lags. A called function may run twice,
with different outcomes.

Two abstractions make the search small, and hide nothing. An executor that has lost its epoch and whose writes would all
be refused is as good as crashed. And executors are alike: they are sorted, so their numbers in a trace may change.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol import run_rules as rules
from tests.protocol.run_execution import Moved, known, with_executor
from tests.protocol.run_executor import WAKE, Executors, with_message
from tests.protocol.run_model import GONE, HOLDING, Client, Executor, Record, World
from tests.protocol.run_workflow import CANCEL
from tests.protocol.search import Breach, Move

_ANSWERS = ("result 0", "result 1")


class Runs(Executors):
    """All moves of one scenario over one store."""

    def first(self) -> World:
        """Return the world at the beginning."""
        queue = tuple(f"start {run}" for run in self.scenario.starts)
        stage: tuple[Client, Client] = (Client("new"), Client("again"))
        is_delivery = [kind == CANCEL or kind.startswith("signal ") for kind in self.scenario.clients]
        clients = tuple(stage[self.scenario.repeats and delivers] for delivers in is_delivery)
        return World(None, (), queue, (None,) * self.scenario.executors, clients)

    def is_end(self, world: World) -> bool:
        """Return whether nothing is left to do."""
        return rules.is_end(world, self.scenario)

    def check(self, world: World) -> None:
        """Check what must hold in every state."""
        rules.check(world, self.scenario)

    def moves(self, world: World) -> Moved:
        """Yield every move that can be made, and check it."""
        for move in self.all_moves(world):
            try:
                rules.check_move(world, move.world)
            except Breach as breach:
                raise Breach(breach.rule, f"{breach}, by {move.label}") from breach
            yield move

    def all_moves(self, world: World) -> Moved:
        """Yield every move that can be made."""
        for slot in range(len(world.executors)):
            yield from self.executor_moves(world, slot)
        for number in range(len(world.clients)):
            yield from self.client_moves(world, number)
        yield from self.queue_moves(world)
        if world.call.queued or world.call.callee:
            yield from self.callee_moves(world)

    def queue_moves(self, world: World) -> Moved:
        """Yield wakes of the sweep, and start messages that come back."""
        if world.record is not None and WAKE not in world.queue:
            swept = world._replace(queue=with_message(world.queue, WAKE))
            if world.record.wake is not None:
                yield Move(("sweep", "send wake"), True, self.sweep(swept))
            elif self.may_stray(world):
                yield Move(("sweep", "send wake", "stray"), False, swept)
        for run in self.scenario.late:
            message = f"start {run}"
            if message not in world.queue:
                yield Move(
                    ("queue", "repeat", message), False, world._replace(queue=with_message(world.queue, message))
                )

    def sweep(self, world: World) -> World:
        """Return the world after the sweep has sent a wake. It writes nothing."""
        return world

    def may_stray(self, world: World) -> bool:
        """Return whether a wake may be sent although nothing asks for it."""
        return world.record is not None

    # A called function, its consumer, and the queue between.

    def callee_moves(self, world: World) -> Moved:
        """Yield what the consumer of the call can do."""
        call = world.call
        if not call.callee:
            yield self._called(world, "receive", "running")
            return
        yield self._called(world, "crash", "")._replace(fair=False)
        if call.callee == "running":
            yield from (self._called(world, f"return {answer}", answer) for answer in _ANSWERS)
        elif call.callee in _ANSWERS:
            record = self.store.deliver(known(world), call.callee) if call.answers < len(_ANSWERS) else None
            if record is None:
                yield self._called(world, "deliver", "answered")
            else:
                after = world._replace(record=record, call=call._replace(answers=call.answers + 1))
                yield self._called(after, "deliver", "delivered")
        elif call.callee == "delivered":
            yield self._called(world._replace(queue=with_message(world.queue, WAKE)), "send wake", "answered")
        else:
            yield self._called(world._replace(call=call._replace(queued=False)), "acknowledge", "")

    def _called(self, world: World, label: str, callee: str) -> Move[World]:
        return Move(("callee", label), True, world._replace(call=world.call._replace(callee=callee)))

    # Clients and operators.

    def client_moves(self, world: World, number: int) -> Iterator[Move[World]]:
        """Yield what one client can do."""
        client, kind = world.clients[number], self.scenario.clients[number]
        if client.stage == "done":
            return
        if client.stage == "stored":
            after = world._replace(queue=with_message(world.queue, WAKE))
            yield self.client_at(after, number, "send wake", Client("done"))
        elif kind == "terminate":
            yield from self.terminate_by_client(world, number)
        elif kind == "resume":
            is_parked = world.record is not None and world.record.parked
            record = self.store.resume(known(world)) if is_parked else None
            if record is not None:
                yield self.client_at(world._replace(record=record, tries=0), number, "resume", Client("stored"))
        elif kind.startswith("start "):
            yield from self.start(world, number, int(kind.removeprefix("start ")), None)
        elif " with start " in kind:
            signal, _, run = kind.partition(" with start ")
            yield from self.signal_with_start(world, number, int(run), signal)
        else:
            yield from self.deliver(world, number, kind)

    def terminate_by_client(self, world: World, number: int) -> Moved:
        """End a run from outside."""
        record = self.store.terminate(world.record) if world.record is not None else None
        if record is not None:
            stage = Client("stored" if record.duties else "done")
            yield self.client_at(world._replace(record=record), number, "terminate", stage)

    def deliver(self, world: World, number: int, item: str) -> Moved:
        """Put an item into the inbox. The reply may be lost, so that it is delivered again."""
        record = self.store.deliver(world.record, item) if world.record is not None else None
        if record is None:
            yield self.client_at(world, number, f"deliver {item} refused", Client("done"))
            return
        after = world._replace(record=record, accepted=world.accepted | {item})
        yield self.client_at(after, number, f"deliver {item} ok", Client("stored", record.run))
        if world.clients[number].stage == "again":
            yield self.client_at(after, number, f"deliver {item} lost", Client("new"))

    def start(self, world: World, number: int, run: int, signal: str | None) -> Moved:
        """Begin a run with a chosen id: put the record, then send a wake. The other order starts what was refused."""
        client, record = world.clients[number], world.record
        new = self.store.first(run, (signal,) if signal else ())
        if record is None:
            after = world._replace(record=new, accepted=frozenset(new.inbox))
            yield self.client_at(after, number, f"create {run} ok", Client("stored", run))
        elif client.stage == "replacing":
            yield self.replace_by_client(world, number, client.run, new)
        elif record.run == run or self.was_used(world, run) or record.is_open:
            yield self.client_at(world, number, f"create {run} refused", Client("done"))
        elif not record.duties:
            yield self.client_at(world, number, f"create {run} refused", Client("replacing", record.run))

    def replace_by_client(self, world: World, number: int, old: int, new: Record) -> Move[World]:
        """Put a run in the place of a closed one, without a lease; if another client was faster, begin again."""
        after = self.replaced(world, old, new)
        if after is None:
            return self.client_at(world, number, f"replace by {new.run} refused", Client("new"))
        return self.client_at(after, number, f"replace by {new.run} ok", Client("stored", new.run))

    def signal_with_start(self, world: World, number: int, run: int, signal: str) -> Moved:
        """Deliver to an open run, or begin one: each single write has both parts in it."""
        is_open = world.record is not None and world.record.is_open
        if is_open and world.clients[number].stage != "replacing":
            yield from self.deliver(world, number, signal)
        else:
            yield from self.start(world, number, run, signal)

    def client_at(self, world: World, number: int, label: str, client: Client) -> Move[World]:
        """Return an unfair move of a client."""
        clients = (*world.clients[:number], client, *world.clients[number + 1 :])
        return Move((f"client {number}", label), False, world._replace(clients=clients))

    # Equal futures are equal states.

    def canonical(self, world: World) -> World:
        """Forget what nothing depends on any more."""
        record = world.record
        if record is None:
            return world if len(world.executors) < 2 else _sorted(world)
        if record.leased and record.wake not in (None, "now"):
            record = record._replace(wake="now")  # which instant it is matters only when the lease is given back
        is_needed = False
        for slot, executor in enumerate(world.executors):
            if executor is None:
                continue
            if executor.stage in HOLDING and self.is_spent(world, slot, executor, record):
                world = with_executor(world, slot, None)
            elif record.epoch == slot and (executor.stage in HOLDING or executor.stage == "received"):
                is_needed = True
        if record.epoch >= 0 and not is_needed:
            record = record._replace(epoch=GONE)
        if record is not world.record:
            world = world._replace(record=record)
        return _sorted(world)

    def is_spent(self, world: World, slot: int, executor: Executor, record: Record) -> bool:
        """Return whether an executor without the newest epoch can do nothing any more that anybody would notice."""
        if record.epoch == slot or self.scenario.chunks:
            return False
        if executor.stage == "running" and not executor.pending and self.wish(world, executor).kind == "call":
            return False
        return not self.may_write(record, slot, executor)

    def may_write(self, record: Record, slot: int, executor: Executor) -> bool:
        """Return whether any fenced write would be accepted; never without the newest epoch, but for a mistake."""
        return (
            self.store.append(record, slot, executor) is not None
            or self.store.may_suspend(record, slot, executor)
            or self.store.close(record, slot, executor, "completed") is not None
        )


def _sorted(world: World) -> World:
    """Return the world with its executors in a fixed order."""
    executors, record, chunk = world.executors, world.record, world.chunk
    epoch = record.epoch if record is not None else GONE
    writer = chunk.writer if chunk is not None else GONE

    places = [(executor or (), epoch == slot, writer == slot) for slot, executor in enumerate(executors)]
    if places == sorted(places):
        return world
    order = sorted(range(len(executors)), key=places.__getitem__)
    if record is not None and epoch >= 0:
        record = record._replace(epoch=order.index(epoch))
    if chunk is not None and writer >= 0:
        chunk = chunk._replace(writer=order.index(writer))
    return world._replace(executors=tuple(executors[slot] for slot in order), record=record, chunk=chunk)
