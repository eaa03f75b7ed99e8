"""A walk through the model that writes down what it does as a trace, as a recorder beside a real store would."""

from __future__ import annotations

import random

from tests.protocol.run_clients import Runs
from tests.protocol.run_model import Executor, World
from tests.protocol.run_traces import Operation
from tests.protocol.search import Breach, Move

_UNSEEN = frozenset({"read the clock"})
_WITH_FACTS = frozenset({"append", "suspend", "close", "continue as new"})


class Walk:
    """One walk; chance decides where it goes.

    Attributes:
        trace: What it did so far.
    """

    def __init__(self, runs: Runs, rng: random.Random) -> None:
        self.trace: list[Operation] = []
        self._runs = runs
        self._world = runs.first()
        self._rng = rng
        for run in runs.scenario.starts:
            self.trace.append(Operation("client", "send start", run=str(run)))

    def go(self, steps: int) -> None:
        """Make moves, fewer than `steps` if one of them would break a rule. A crash is taken less often than others."""
        for _ in range(steps):
            try:
                moves = list(self._runs.all_moves(self._world))
            except Breach:
                return
            move = self._rng.choice(moves)
            if move.label[1] == "crash":
                move = self._rng.choice(moves)
            self._write(move)
            self._world = move.world

    def _write(self, move: Move[World]) -> None:
        actor = move.label[0]
        if isinstance(actor, int):
            self._write_executor(actor, move)
        elif actor == "callee":
            self._write_callee(move)
        elif actor == "queue":
            self.trace.append(Operation("queue", "send start", run=str(move.label[2]).removeprefix("start ")))
        elif actor == "sweep":
            self.trace.append(Operation("sweep", "send wake"))
        else:
            self._write_client(str(actor), str(move.label[1]), move)

    def _write_executor(self, slot: int, move: Move[World]) -> None:
        actor, name = f"executor {slot}", str(move.label[1])
        outcome = str(move.label[2]) if len(move.label) > 2 else "ok"
        if name == "receive":
            run = "" if outcome == "wake" else outcome.removeprefix("start ")
            self.trace.append(Operation(actor, name, run=run))
        elif name == "put chunk":
            if outcome == "refused":
                self.trace.append(Operation(actor, "crash"))
        elif name not in _UNSEEN:
            self.trace.append(self._operation(actor, name, outcome, slot, move))
            executor = move.world.executors[slot]
            if "run" in move.label and executor is not None:
                self.trace.append(Operation(actor, "start step", facts=executor.pending[:-1]))

    def _operation(self, actor: str, name: str, outcome: str, slot: int, move: Move[World]) -> Operation:
        operation = Operation(actor, name)
        if outcome == "refused":
            operation = operation._replace(outcome="refused")
        elif outcome == "lost":
            operation = operation._replace(outcome="lost")
        executor = self._world.executors[slot]
        if name not in _WITH_FACTS or executor is None:
            return operation
        return self._with_facts(operation, executor, move)

    def _with_facts(self, operation: Operation, executor: Executor, move: Move[World]) -> Operation:
        before, after = self._world.record, move.world.record
        facts = executor.pending
        if before is None or after is None:
            return operation
        if executor.stage == "suspending":  # the same once more
            made = next(made for made in self.trace[::-1] if made[:2] == operation[:2])
            return made._replace(outcome=operation.outcome)
        if operation.name == "suspend" and operation.outcome != "refused":
            facts = after.journal[len(before.journal) :]
            operation = operation._replace(wake=after.wake)
        if operation.name == "close" and after.status in {"completed", "cancelled"}:
            operation = operation._replace(status=after.status)
        if operation.name == "continue as new":
            operation = operation._replace(run=str(after.run))
        return operation._replace(facts=facts, drained=executor.fed)

    def _write_callee(self, move: Move[World]) -> None:
        before, after = self._world.record, move.world.record
        if move.label[1] == "send wake":
            self.trace.append(Operation("callee", "send wake"))
        elif before is not after and after is not None:
            self.trace.append(Operation("callee", "deliver", item=after.inbox[-1]))

    def _write_client(self, actor: str, label: str, move: Move[World]) -> None:
        if label in {"send wake", "terminate", "resume"}:
            self.trace.append(Operation(actor, label))
            return
        what, _, outcome = label.rpartition(" ")
        name, _, subject = what.replace("replace by", "replace").partition(" ")
        operation = Operation(actor, name, "refused" if outcome == "refused" else "ok")
        if name == "deliver":
            self.trace.append(operation._replace(item=subject))
        else:
            record = move.world.record
            item = record.inbox[0] if outcome == "ok" and record is not None and record.inbox else ""
            old = self._world.clients[int(actor.removeprefix("client "))].run
            self.trace.append(operation._replace(run=subject, item=item, old=str(old) if name == "replace" else ""))
