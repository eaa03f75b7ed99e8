"""What happened to one workflow id on a real store, as the model sees it; and whether the model can do the same.

A trace is a list of `Operation`, in the order in which the store did them. A `RunPath` follows it through the moves of
the model, whatever the workflow did, and tells the first operation that the model cannot do, or that breaks a rule.
Time is not in the model: whether a lease was over when it was taken is not judged.

An actor that receives a message is an executor from then on, until it acknowledges, crashes or is refused by a fence.

| operation | by | what else it needs |
|---|---|---|
| `send start`, `send wake` | anybody | the run |
| `receive` | executor | the run of a start message, nothing for a wake |
| `create` | executor or client | the run; what a client puts with it as `item` |
| `acquire` | executor | the `wake`, if it sets one (so may `create` and `append`) |
| `guard` | executor | |
| `append` | executor | `facts` that are stored, how many inbox items are `drained` |
| `suspend` | executor | the same, and the new `wake` |
| `close` | executor | the same, and the `status` |
| `continue as new` | executor | the same, and the next run |
| `park` | executor | |
| `start step`, `send call` | executor | `facts` fed before it was asked for, and not stored: none |
| `tell`, `clear duties` | executor | |
| `replace` | executor or client | the run; what a client puts with it as `item`; the closed run as `old` |
| `terminate` | executor or client | the run to end as `old`, if it matters |
| `deliver` | client | the `item`: `signal` or `result` and an id, or `cancel`; the run as `old`, if it matters |
| `resume` | client | |
| `release` | the only host, at its start | |
| `acknowledge`, `crash` | executor | |

The outcome is `ok`, `refused` if the condition fails, or `lost` if it was stored and the reply was not received; after
that the same operation follows again, or a crash. A sweep is a client that does `send wake`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from tests.protocol import run_rules as rules
from tests.protocol.run_clients import Runs
from tests.protocol.run_execution import Moved, known, left, with_executor
from tests.protocol.run_executor import WAKE, started_by, with_message
from tests.protocol.run_model import Executor, Record, Stage, Status, Store, Wake, World
from tests.protocol.run_rules import Scenario
from tests.protocol.run_workflow import CANCEL, AnyWorkflow, Facts
from tests.protocol.search import Breach, Move, need

FULL = 100
"""How many items an inbox holds."""

EVERY_REPLY = frozenset({"create", "acquire", "append", "suspend", "close", "replace", "continue as new"})

_RUNNING = frozenset({"running", "called"})
_STAGES: dict[str, frozenset[str]] = {
    "create": frozenset({"received"}),
    "acquire": frozenset({"received"}),
    "guard": frozenset({"guarding"}),
    "terminate": frozenset({"terminating"}),
    "replace": frozenset({"replacing"}),
    "start step": frozenset({"running"}),
    "send call": _RUNNING,
    "append": _RUNNING,
    "suspend": _RUNNING | {"suspending"},
    "close": _RUNNING,
    "continue as new": _RUNNING,
    "park": frozenset({"parking"}),
    "send wake": frozenset({"suspended"}),
    "tell": frozenset({"telling"}),
    "clear duties": frozenset({"clearing"}),
    "acknowledge": frozenset({"done", "suspended"}),
}
"""In which stages an executor does what."""

_GUARDING = frozenset({"create", "acquire", "append"})
_BY_CLIENTS = frozenset({"send start", "send wake", "create", "replace", "terminate", "deliver", "resume", "release"})
_NAMES = _BY_CLIENTS | _STAGES.keys() | {"receive", "crash"}


class Operation(NamedTuple):
    """One operation on the store or the queue, and how it went. See the table above."""

    actor: str
    name: str
    outcome: Literal["ok", "refused", "lost"] = "ok"
    run: str = ""
    facts: Facts = ()
    drained: int = 0
    wake: Wake | None = None
    status: Status = "completed"
    item: str = ""
    old: str = ""


class Difference(NamedTuple):
    """Where a trace leaves the model.

    Attributes:
        before: The operations so far, the last ones only.
        operation: The one that the model cannot follow.
        why: The rule it breaks, or what the model knew when it could not follow.
    """

    before: tuple[Operation, ...]
    operation: Operation
    why: str


def leaves_the_model(trace: list[Operation], *, limit: int = 0, parent: bool = False) -> Difference | None:
    """Return where a trace leaves the model, None if it is a path of it.

    Args:
        trace: All operations of one workflow id, from before its first start.
        limit: How many acquisitions without progress the store allows; 0 if it does not count them.
        parent: Whether the runs of the id have duties after their close.
    """
    path = RunPath(limit, parent=parent)
    for place, operation in enumerate(trace):
        why = path.follow(operation)
        if why is not None:
            return Difference(tuple(trace[max(0, place - 12) : place]), operation, why)
    return None


class RunPath:
    """The worlds of the model that a trace may have led to. Few, for nearly all is in the trace."""

    def __init__(self, limit: int = 0, *, parent: bool = False) -> None:
        policies = ("refuse", "terminate")
        scenario = Scenario(
            "a trace", AnyWorkflow(), (), (), (), deadline=False, parent=parent, limit=limit, losses=EVERY_REPLY
        )
        self._runs = [Runs(scenario._replace(conflict=policy), Store(limit, parent=parent)) for policy in policies]
        self.worlds: set[World] = {World(None, (), (), ())}
        self._slots: dict[str, int] = {}
        self._numbers: dict[str, int] = {}

    def follow(self, operation: Operation) -> str | None:
        """Follow one operation.

        Returns:
            None if the model can do it; otherwise why it cannot. The path must not be followed any further then.

        Raises:
            ValueError: There is no operation of that name.
        """
        if operation.name not in _NAMES:
            raise ValueError(f"no operation of the model: {operation}")
        worlds: set[World] = set()
        found: list[str] = []
        for runs in self._runs:
            for world in self.worlds:
                try:
                    worlds |= {move.world for move in self._checked(runs, world, operation)}
                except Breach as breach:
                    found.append(str(breach))
        if not worlds:
            return found[0] if found else f"not a move of the model: {[self._shown(world) for world in self.worlds]}"
        if operation.name == "continue as new" and operation.outcome != "refused":
            self._numbers[operation.run] = max(known(world).run for world in worlds)
        self.worlds = worlds
        return None

    def _checked(self, runs: Runs, world: World, operation: Operation) -> Moved:
        for move in self._moves(runs, world, operation):
            rules.check_move(world, move.world)
            if move.world.record is not None:
                rules.check(move.world, runs.scenario)
            yield move

    def _moves(self, runs: Runs, world: World, operation: Operation) -> Moved:
        if operation.name == "receive":
            yield self._receive(world, operation)
            return
        slot = self._slots.get(operation.actor)
        if slot is None:
            yield from self._by_client(runs, world, operation)
            return
        executor = world.executors[slot] if slot < len(world.executors) else None
        if executor is None:
            return
        if operation.name == "crash":
            yield Move((slot, "crash"), False, left(world, slot))
        elif executor.stage in _STAGES.get(operation.name, ()):
            for move in self._by_executor(runs, world, slot, executor, operation):
                if operation.outcome in _outcomes(move):
                    yield move._replace(world=_guarded(move.world, operation))

    def _receive(self, world: World, operation: Operation) -> Move[World]:
        slot = self._slots.setdefault(operation.actor, len(self._slots))
        executors = world.executors + (None,) * (slot + 1 - len(world.executors))
        message = f"start {self._number(operation.run)}" if operation.run else WAKE
        world = world._replace(executors=executors, queue=with_message(world.queue, message))
        need("fenced", executors[slot] is None, f"{operation.actor} receives a second message")
        return Move((slot, "receive"), True, with_executor(world, slot, Executor(message)))

    # Executors.

    def _by_executor(self, runs: Runs, world: World, slot: int, executor: Executor, operation: Operation) -> Moved:
        name = operation.name
        if name in {"create", "acquire"}:
            yield from self._begin(runs, world, slot, executor, operation)
        elif name in {"append", "suspend", "close", "continue as new"}:
            need("fenced", operation.drained == executor.fed, f"{operation} drains other than the {executor.fed} fed")
            yield from _write(runs, world, slot, executor._replace(pending=operation.facts), operation)
        elif name in {"start step", "send call"}:
            pending = executor._replace(pending=operation.facts)
            rules.check_effect(world, slot, pending, None)
            yield Move((slot, name), True, world)
        else:
            stage: Stage = "done" if name == "acknowledge" else executor.stage
            yield from runs.by_stage[stage](world, slot, executor)

    def _begin(self, runs: Runs, world: World, slot: int, executor: Executor, operation: Operation) -> Moved:
        record, run = world.record, started_by(executor.message)
        is_other = record is not None and run not in (None, record.run)
        if operation.name == "create":
            if record is None and run is not None:
                yield from runs.create(world, slot, executor, run)
            elif record is not None and is_other and operation.outcome == "refused":
                yield runs.meet(world, slot, executor, record, run or 0)
                yield runs.reached((slot, "create", "refused"), world, slot, executor, "done")
            elif record is not None and operation.outcome == "refused":
                yield Move((slot, "create", "refused"), True, world)
            elif record is not None and record.epoch == slot and not is_other:
                yield from runs.acquire(world, slot, executor, record)
        elif record is None:
            yield runs.reached((slot, "acquire", "refused"), world, slot, executor, "done")
        elif not is_other:
            yield from runs.acquire(world, slot, executor, record)

    # Everybody else.

    def _by_client(self, runs: Runs, world: World, operation: Operation) -> Moved:
        label = (operation.actor, operation.name)
        if operation.name == "deliver" and _is_repeated(world, operation.item):
            yield Move(label, False, world)  # a store that looks for it stores it once, and says so or refuses it
        after = self._stored(runs, world, operation)
        if (after is not None) is (operation.outcome != "refused"):
            yield Move(label, False, world if after is None else after)

    def _stored(self, runs: Runs, world: World, operation: Operation) -> World | None:
        """Return the world after a client's operation, None if it is refused."""
        record, store, run = world.record, runs.store, operation.run
        if operation.name in {"send wake", "send start"}:
            message = WAKE if operation.name == "send wake" else f"start {self._number(run)}"
            return world._replace(queue=with_message(world.queue, message))
        if operation.name in {"create", "replace"}:
            new = store.first(self._number(run), (operation.item,) if operation.item else ())
            if operation.name == "create":
                return world._replace(record=new, accepted=frozenset(new.inbox)) if record is None else None
            return None if record is None else runs.replaced(world, self._old(record, operation), new)
        if record is None:
            return None
        is_current = self._old(record, operation) == record.run
        changed = _changed(store, record, operation) if is_current else None
        if changed is None:
            return None
        if operation.name == "deliver":
            kept = frozenset() if operation.item.startswith("result ") else frozenset({operation.item})
            return world._replace(record=changed, accepted=world.accepted | kept)
        return world._replace(record=changed, tries=0)

    def _number(self, run: str) -> int:
        """Return the number of a run. Between two starts is room for the runs of a chain."""
        return self._numbers.setdefault(run, 1000 * (len(self._numbers) + 1))

    def _old(self, record: Record, operation: Operation) -> int:
        return self._number(operation.old) if operation.old else record.run

    def _shown(self, world: World) -> tuple[Record | None, dict[str, Executor | None]]:
        executors = {name: world.executors[slot] for name, slot in self._slots.items() if slot < len(world.executors)}
        return world.record, executors


def _changed(store: Store, record: Record, operation: Operation) -> Record | None:
    if operation.name == "deliver":
        return store.deliver(record, operation.item) if len(record.inbox) < FULL else None
    changes = {"terminate": store.terminate, "resume": store.resume, "release": store.release}
    return changes[operation.name](record)


def _is_repeated(world: World, item: str) -> bool:
    record = world.record
    return record is not None and record.is_open and (item in record.inbox or item == CANCEL in world.accepted)


def _guarded(world: World, operation: Operation) -> World:
    """Return the world where a write also sets `wake_at` to the end of its lease, as a redelivery or a renewal does."""
    if operation.wake is None or operation.name not in _GUARDING or operation.outcome == "refused":
        return world
    return world._replace(record=known(world)._replace(wake=operation.wake))


def _write(runs: Runs, world: World, slot: int, executor: Executor, operation: Operation) -> Moved:
    if operation.name == "append":
        return runs.append(world, slot, executor)
    if operation.name == "suspend":
        return runs.suspend(world, slot, executor, (), operation.wake)
    if operation.name == "close":
        return runs.close(world, slot, executor, operation.status)
    return runs.continue_as_new(world, slot, executor)


def _outcomes(move: Move[World]) -> tuple[str, ...]:
    """Return how a store may say that an operation went. A repeated one is refused, or recognised by the store."""
    if "its own" in move.label:
        return ("refused", "ok")
    return tuple(str(part) for part in move.label[2:3] if part in {"refused", "lost"}) or ("ok",)
