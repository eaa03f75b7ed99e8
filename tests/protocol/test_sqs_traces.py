"""What the adapters do on the simulator is what the model does: every run is a path of it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from iii_runtime import Queue, Worker, current_invocation, register_worker
from iii_runtime.adapters.aws import message_intake, message_item, reconciler
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.delivery import Attempt, Drop, FinishDeath, Incoming, LetterFate, MessageItem, NextStep
from iii_runtime.core.delivery import decide_letter as real_letter
from iii_runtime.core.delivery import decide_step as real_step
from tests.aws.calls import Call, Reply
from tests.aws.invocations import Invocation
from tests.aws.lambda_service import FunctionFailedError
from tests.aws.overseers import At
from tests.aws.simulator import Simulator
from tests.protocol.search import Breach
from tests.protocol.sqs_delivery import Scenario
from tests.protocol.sqs_model import Limits
from tests.protocol.sqs_traces import AnyRedrive, Difference, Trace, leaves_the_model

STANDARD = QueueConfig(name="work", max_retries=2, backoff_ms=1000)
FIFO = QueueConfig(name="work", max_retries=2, backoff_ms=1000, type="fifo", message_group_field="group")
RUNS = 10
STEPS = 14
NEVER = 10_000


class Watching(At):
    """Takes views for a trace, kills a sandbox at one point, and loses the answer to one request."""

    def __init__(self, kill: int = NEVER, lose: int = NEVER) -> None:
        super().__init__(kill, lambda invocation: invocation.kill())
        self.trace: Trace | None = None
        self._lose = lose
        self._answers = 0

    def after(self, invocation: Invocation, call: Call, reply: Reply) -> None:
        assert self.trace is not None
        self.trace.after(invocation, call, reply)
        answer, self._answers = self._answers, self._answers + 1
        if answer == self._lose:
            raise ReadTimeoutError(endpoint_url="https://aws.example")


class Run:
    """One run of a queue on the simulator, with its trace.

    Attributes:
        fails: Whether the next attempts fail; chance decides when it is used up.
    """

    def __init__(self, simulator: Simulator, rng: random.Random) -> None:
        self.simulator = simulator
        self.planned = simulator.plan.queues["work"]
        self.trace = Trace(simulator, self.planned, [])
        self.fails: list[bool] = []
        self._rng = rng

    def send(self, count: int) -> None:
        """Enqueue messages, and begin the trace."""
        for number in range(count):
            action = {"type": "enqueue", "queue": "work"}
            sent: Any = self.simulator.trigger("a::work", {"group": "g", "n": number}, action)
            self.trace.receipts.append(sent["messageReceiptId"])
        self.trace.begin()

    def step(self) -> None:
        """Do one thing that can happen, with one mishap that can."""
        pick = self._rng.choice
        actions: list[tuple[int, Callable[[], None]]] = [
            (6, lambda: self.work(kill=pick([0, 1, 2, 3, NEVER]), lose=pick([0, 1, 2, NEVER, NEVER]))),
            (2, lambda: self.throttle(pick([1, 1, 1, self.planned.max_receives]))),
            (3, lambda: self.redrive(kill=pick([1, 2, 3, NEVER, NEVER]))),
            (1, self.discard),
            (2, self.console),
            (3, self.tidy),
        ]
        weights = [weight for weight, _ in actions]
        self._rng.choices(actions, weights)[0][1]()

    def work(self, *, kill: int = NEVER, lose: int = NEVER) -> None:
        """Handle what is due next; a sandbox is killed at a request, or an answer lost."""
        self._watched(Watching(kill, lose), self.simulator.settle_next)

    def throttle(self, times: int = 1) -> None:
        """Let receives be throttled, one at a time."""
        for _ in range(times):
            self.simulator.source("work").throttles = 1
            self.work()

    def redrive(self, *, kill: int = NEVER) -> None:
        """Redrive the first message; the operator dies at a request."""
        self._watched(Watching(kill), lambda: self._ask("iii::queue::redrive_message"))

    def discard(self) -> None:
        """Discard the first message if it is dead."""
        self._watched(Watching(), lambda: self._ask("iii::queue::discard_message"))

    def console(self) -> None:
        """Redrive everything as the console does; perhaps letters stay."""
        letters = len(self.simulator.letters("work"))
        for _ in range(letters):
            self.simulator.console_redrive("work", limit=1, leave_copies=self._rng.random() < 0.2)
            self.trace.look()

    def tidy(self) -> None:
        """Let the reconciler look twice."""

        def ticks() -> None:
            for _ in range(2):
                self.simulator.tick()

        self.simulator.clock.advance(timedelta(minutes=2))
        self._watched(Watching(), ticks)

    def _ask(self, function_id: str) -> None:
        with contextlib.suppress(FunctionFailedError):  # the operator was killed
            self.simulator.trigger(function_id, {"queue": "work", "message_id": self.trace.receipts[0]})

    def _watched(self, overseer: Watching, body: Callable[[], None]) -> None:
        overseer.trace = self.trace
        self.simulator.lambdas.overseer = overseer
        body()
        self.simulator.lambdas.overseer = None
        self.trace.look()


def run(seed: int, queue: QueueConfig, drive: Callable[[Run], None]) -> Difference | None:
    """Drive a queue, and return where the trace leaves the model. The seed decides which attempts fail."""
    rng = random.Random(seed)
    worker: Worker = register_worker(worker_name="app")
    held: list[Run] = []

    @worker.function("a::work", triggers=[Queue("work")])
    def work(_data: Any) -> None:
        invocation = current_invocation()
        assert invocation is not None
        receipt = str(invocation.message_receipt_id)
        held[0].trace.did("start", receipt, invocation.attempt)
        if held[0].fails.pop(0) if held[0].fails else rng.random() < 0.6:
            held[0].trace.did("fail", receipt)
            raise ValueError("no")
        held[0].trace.did("succeed", receipt)

    with Simulator([worker], Config(queues={"work": queue})) as simulator:
        held.append(Run(simulator, rng))
        held[0].send(2 if queue.type == "fifo" else 1)
        drive(held[0])
        planned = held[0].planned
        unrun = planned.spec.receives_for("a::work")
        scenario = Scenario(
            "a trace",
            Limits(planned.spec.max_attempts, unrun, planned.max_receives - unrun),
            messages=len(held[0].trace.receipts),
            kills=True,
            throttles=True,
            fifo=planned.spec.is_ordered,
            redrives=True,
            discards=True,
            console=True,
            copies=99,
        )
        return leaves_the_model(held[0].trace.events, AnyRedrive(scenario))


def any_steps(run: Run) -> None:
    """Do whatever can happen."""
    for _ in range(STEPS):
        run.step()


@pytest.mark.parametrize("queue", [STANDARD, FIFO], ids=["standard", "fifo"])
def test_every_run_on_the_simulator_is_a_path_of_the_model(queue: QueueConfig) -> None:
    for seed in range(RUNS):
        difference = run(seed, queue, any_steps)
        if difference is not None:
            told = "\n".join(map(str, (*difference.before, "and then", difference.event)))
            pytest.fail(f"seed {seed}: the model cannot follow\n{told}", pytrace=False)


def counts_twice(patch: pytest.MonkeyPatch) -> None:
    """A failure that is written again counts again: its attempt is taken for the next one."""
    real = message_item.MessageItems.record_failure

    async def record(self: Any, receipt: str, generation: int, attempt: int, error: Any, not_before_ms: int) -> Any:
        return await real(self, receipt, generation, attempt + 1, error, not_before_ms)

    patch.setattr(message_item.MessageItems, "record_failure", record)


def claims_what_was_discarded(patch: pytest.MonkeyPatch) -> None:
    """A redriven copy takes over a discarded item."""
    claimable = "st <> :discarded"
    assert claimable in message_item._CLAIMABLE
    either = message_item._CLAIMABLE.replace(claimable, f"{claimable} OR st = :discarded")
    patch.setattr(message_item, "_CLAIMABLE", either)

    def step(item: MessageItem | None, incoming: Incoming, now_ms: int) -> NextStep:
        from iii_runtime.core.delivery import Claim

        is_older = item is not None and item.generation < incoming.generation
        return Claim() if is_older else real_step(item, incoming, now_ms)

    patch.setattr(message_intake, "decide_step", step)


def takes_any_copy(patch: pytest.MonkeyPatch) -> None:
    """Copies of several redrives of one letter run."""

    def step(item: MessageItem | None, incoming: Incoming, now_ms: int) -> NextStep:
        found = real_step(item, incoming, now_ms)
        is_same = item is not None and item.generation == incoming.generation and item.state == "alive"
        return Attempt(item.failed + 1) if item is not None and is_same and isinstance(found, Drop) else found

    patch.setattr(message_intake, "decide_step", step)


def forgets_the_letter(patch: pytest.MonkeyPatch) -> None:
    """A message that is found dead is only acknowledged."""

    def step(item: MessageItem | None, incoming: Incoming, now_ms: int) -> NextStep:
        found = real_step(item, incoming, now_ms)
        return Drop() if isinstance(found, FinishDeath) else found

    patch.setattr(message_intake, "decide_step", step)


def deletes_what_no_item_knows(patch: pytest.MonkeyPatch) -> None:
    """The reconciler deletes what SQS moved by itself."""

    def letter(item: MessageItem | None, incoming: Incoming, *, is_native: bool) -> LetterFate:
        found = real_letter(item, incoming, is_native=is_native)
        return "delete" if found == "adopt" else found

    patch.setattr(reconciler, "decide_letter", letter)


def fails_once(run: Run) -> None:
    """One attempt fails."""
    run.fails = [True]
    run.work()


def dies_and_is_discarded_while_it_is_redriven(run: Run) -> None:
    """The operator dies between the send and the mark, another one discards the letter."""
    run.fails = [True, True, False]
    run.work()
    run.work()
    run.redrive(kill=2)
    run.discard()
    run.work()


def dies_and_is_redriven_twice(run: Run) -> None:
    """The operator dies between the send and the mark, and does it again."""
    run.fails = [True, True, True, False]
    run.work()
    run.work()
    run.redrive(kill=2)
    run.redrive()
    for _ in range(3):
        run.work()


def dies_before_its_letter_is_put(run: Run) -> None:
    """The consumer is killed between the death and the letter."""
    run.fails = [True, True]
    run.work()
    run.work(kill=2)
    run.work()


def is_moved_by_sqs(run: Run) -> None:
    """No receive ever reaches the consumer."""
    run.throttle(run.planned.max_receives)
    run.work()
    run.tidy()


MISTAKES = [
    (counts_twice, fails_once),
    (claims_what_was_discarded, dies_and_is_discarded_while_it_is_redriven),
    (takes_any_copy, dies_and_is_redriven_twice),
    (forgets_the_letter, dies_before_its_letter_is_put),
    (deletes_what_no_item_knows, is_moved_by_sqs),
]


@pytest.mark.parametrize(("mistake", "drive"), MISTAKES, ids=[mistake.__name__ for mistake, _ in MISTAKES])
def test_a_mistake_in_the_adapter_leaves_the_model(
    mistake: Callable[[pytest.MonkeyPatch], None],
    drive: Callable[[Run], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the agreement above would prove little."""
    assert run(0, STANDARD, drive) is None
    mistake(monkeypatch)
    assert leaves(drive)


def leaves(drive: Callable[[Run], None]) -> bool:
    """Return whether a run leaves the model, or breaks one of its rules."""
    try:
        return run(0, STANDARD, drive) is not None
    except Breach:
        return True
