"""An app on AWS in this process: its real Lambda handlers, moto, and what makes AWS invoke them, on a virtual clock.

One invocation at a time, in a fixed order, so that a run can be repeated exactly; `harness` runs them side by side.
What the code under test asks of AWS can be counted, refused or cut off through `lambdas.overseer`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any, Self, TypeAlias

from iii_runtime.adapters.threads import ThreadExecutor
from iii_runtime.core.config import Config
from iii_runtime.core.payload import Json, PayloadError
from iii_runtime.core.remote import RemoteTrigger, decode_answer, encode_request
from iii_runtime.core.remote_error import error_of
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.core.worker import Worker
from iii_runtime.engine.runtime import Runtime
from iii_runtime.engine.stores import Stores
from iii_runtime.hosts.aws_lambda.environment import read_environment
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.aws_lambda.stores import aws_stores
from iii_runtime.hosts.loop_invoker import LoopInvoker
from iii_runtime.plan.app import plan_app
from iii_runtime.plan.app_plan import PlannedFunction
from iii_runtime.plan.names import Deployment
from iii_runtime.testing.clock import SequenceIds, SkipClock
from tests.aws.calls import shared_clients
from tests.aws.cloud import ACCOUNT, REGION, Cloud, SandboxClock
from tests.aws.deployed_app import describe, importable, request_fields
from tests.aws.event_sources import QueueSource, Work
from tests.aws.gateway import HttpApi, WebSocketApi
from tests.aws.lambda_service import FunctionFailedError, LambdaService
from tests.aws.sandboxes import ContextInvoker, SharedSandbox
from tests.aws.sources import Sources

Wrap: TypeAlias = Callable[[Stores], Stores]

_SETTLE_LIMIT = timedelta(days=2)
_numbers = itertools.count(1)


class Simulator:
    """An app, deployed. A context manager; there is one at a time.

    Args:
        workers: Its workers.
        config: Its configuration.
        modules: Modules that register the workers; by default they are handed to the sandboxes without any import.
        clock: The clock.
        move: Moves the clock on where a handler waits; from any thread.
        wrap: Replaces adapters in each sandbox.

    Attributes:
        cloud: The services.
        lambdas: The Lambdas.
        plan: What was deployed.
        http: The HTTP API.
        websocket: The WebSocket API.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        config: Config | None = None,
        *,
        modules: Sequence[str] = (),
        clock: SkipClock | None = None,
        move: Callable[[datetime], None] | None = None,
        wrap: Wrap | None = None,
    ) -> None:
        self.clock = clock or SkipClock()
        self.cloud = Cloud(self.clock)
        self.ids = SequenceIds()
        self.sandbox_clock = SandboxClock(self.clock, move or self.clock.advance_to)
        self.lambdas = LambdaService(self._open_sandbox, self.clock)
        self._workers = tuple(workers)
        self._wrap = wrap
        self._exit = ExitStack()
        self._module = None if modules else f"workers_of_simulator_{next(_numbers)}"
        self.manifest = describe(self._workers, config or Config(), modules, self._module)
        deployment = Deployment(app="shop", stage="dev", region=REGION, account=ACCOUNT)
        self.plan = plan_app(self.manifest, deployment)
        self.http = HttpApi(self.plan, self.lambdas, self.clock.now_ms)
        self.websocket = WebSocketApi(self.deployment.system_name("websocket"), self.lambdas)

    @property
    def deployment(self) -> Deployment:
        """All names."""
        return self.plan.deployment

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.cloud)
            self.cloud.create(self.plan)
            for function in self.plan.functions.values():
                self.lambdas.host(function)
            stack.callback(self.lambdas.close)
            if self._module is not None:
                stack.enter_context(importable(self._module, self._workers))
            invoker = ContextInvoker(self.trigger_parsed)
            for worker in self._workers:
                stack.callback(worker.attach, worker.attach(invoker))
            self._sources = Sources(self.cloud, self.plan)
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def trigger(self, function_id: str, payload: Json = None, action: Mapping[str, Json] | None = None) -> Json:
        """Do what `Worker.trigger` does, from outside, through the Lambda that carries out requests.

        Raises:
            InvocationError: As the engine there raised it.
        """
        members = {"function_id": function_id, "payload": payload, "action": None if action is None else dict(action)}
        return self.request({name: value for name, value in members.items() if value is not None})

    def request(self, fields: Mapping[str, Json]) -> Json:
        """Carry out a trigger request, given as JSON."""
        event = encode_request(RemoteTrigger(request=fields))
        answer = decode_answer(self.lambdas.invoke(self.deployment.system_name("control"), event))
        if answer.error is not None:
            raise error_of(answer.error)
        if answer.blob is not None:
            raise LookupError("the answer lies in a blob; ask for less")
        return answer.result

    def trigger_parsed(self, request: TriggerRequest) -> Any:
        """Do what `Worker.trigger` does, from code outside of every function.

        What is no JSON cannot reach the stage from outside; it is asked for inside of the same Lambda then.
        """
        try:
            fields = request_fields(request)
        except PayloadError:
            return self._trigger_inside(request)
        return self.request(fields)

    def perform(self, work: Work) -> None:
        """Carry out one invocation."""
        try:
            answer = self.lambdas.invoke(work.function, work.event)
        except FunctionFailedError:
            work.failed()
        else:
            work.done(answer)

    def poll(self) -> Work | None:
        """Return an invocation that is due: of an accepted event first, then of the sources in turn."""
        if self.lambdas.events:
            event = self.lambdas.events.popleft()
            return Work(function=event.function, event=event.payload, done=lambda _: None, failed=lambda: None)
        return self._sources.poll()

    def run_due(self) -> None:
        """Carry out everything that is due, one after the other, until nothing is. The clock does not move."""
        while (work := self.poll()) is not None:
            self.perform(work)

    def settle(self, *, limit: timedelta = _SETTLE_LIMIT) -> None:
        """Work everything off: go on to the next due message, again and again, until no queue holds one.

        Raises:
            RuntimeError: A queue still holds a message after `limit`.
        """
        end = self.clock.now() + limit
        self.run_due()
        while (due := self.next_due(with_schedules=False)) is not None:
            if due > end:
                raise RuntimeError(f"a queue still holds a message that is due at {due}")
            self.step_to(due)

    def settle_next(self) -> None:
        """Go on to the next due message, if one is known, and work off what is due then."""
        due = self.next_due(with_schedules=False)
        if due is not None:
            self.clock.advance_to(due)
            self.run_due()

    def advance(self, duration: timedelta) -> None:
        """Move on by `duration`, and carry out what is due on the way at its own time."""
        self.run_due()
        self.step_to(self.clock.now() + duration)

    def step_to(self, instant: datetime) -> None:
        """Move on to `instant`, stopping wherever something is due."""
        while self.clock.now() < instant:
            due = self.next_due(with_schedules=True)
            self.clock.advance_to(instant if due is None else min(due, instant))
            self.run_due()

    def next_due(self, *, with_schedules: bool) -> datetime | None:
        """Return when the next invocation is due; None if none is known.

        Args:
            with_schedules: Whether schedules and the tick count, which never end.
        """
        if self.lambdas.events:
            return self.clock.now()
        return min(self._sources.due_times(with_schedules=with_schedules), default=None)

    def restart(self) -> None:
        """Throw away all sandboxes, those that run too."""
        self.lambdas.discard_sandboxes()

    def source(self, queue: str) -> QueueSource:
        """Return the mapping of a queue, by the runtime's name."""
        return self._sources.queues[queue]

    def letters(self, queue: str) -> list[str]:
        """Return the bodies on the dead-letter queue of a queue."""
        return [message.body for message in self.cloud.queue(self.plan.queues[queue].letter_name).held]

    def deliver_again(self, function: str) -> int:
        """End the visibility of what a Lambda holds of its queues, and let it handle that once more at once.

        From within an invocation this is a second one beside it, of the same messages. Returns how many there were.
        """
        count = 0
        for source in self._sources.queues.values():
            if source.function != function:
                continue
            with self.cloud.lock:
                for message in source.queue.held:
                    message.visible_at = min(message.visible_at, self.clock.now_ms())
            while (work := source.poll()) is not None:
                count += 1
                self.perform(work)
        return count

    def console_redrive(
        self, queue: str, *, to_sources: bool = False, limit: int | None = None, leave_copies: bool = False
    ) -> int:
        """Redrive letters of a queue as the AWS console does, with the queue as custom destination; return how many.

        Args:
            queue: The queue, by the runtime's name.
            to_sources: Without a custom destination: to the queues that SQS has moved the letters from.
            limit: How many at most; all by default.
            leave_copies: Whether the letters stay, as if the task had died between a send and its delete.

        Raises:
            SourceUnknownError: With `to_sources`, at a letter that the runtime has put there itself.
        """
        planned = self.plan.queues[queue]
        destination = None if to_sources else planned.name
        with self.cloud.lock:
            return self.cloud.sqs.move_back(planned.letter_name, destination, limit=limit, leave_copies=leave_copies)

    def used_queues(self) -> list[str]:
        """Return the queues that hold a message or a dead letter, sorted."""
        queue = self.cloud.queue
        return sorted(
            name for name, each in self.plan.queues.items() if queue(each.name).held or queue(each.letter_name).held
        )

    def outside_stores(self) -> Stores:
        """Return the adapters as somebody outside of the Lambdas uses them."""
        specs = {name: planned.spec for name, planned in self.plan.queues.items()}
        return aws_stores(
            shared_clients(REGION), self.deployment, lambda: specs, self.sandbox_clock, self.ids, deletes=True
        )

    def tick(self) -> None:
        """Let the rule of the minute fire once, whether or not there is anything to do."""
        self.perform(self._sources.minute.fire())

    def _trigger_inside(self, request: TriggerRequest) -> Any:
        name = self.deployment.system_name("control")
        try:
            return self.lambdas.run_inside(
                name, lambda sandbox, context: sandbox.run(lambda: sandbox.runtime.trigger(request), context)
            )
        except FunctionFailedError as error:
            if error.__cause__ is None:
                raise
            raise error.__cause__ from None

    def _open_sandbox(self, planned: PlannedFunction) -> Sandbox:
        environment = read_environment({**planned.environment, "AWS_REGION": REGION})
        sandbox = SharedSandbox(
            environment,
            self.manifest,
            clients=shared_clients(REGION),
            clock=self.sandbox_clock,
            ids=self.ids,
            executor=ThreadExecutor(),
        )
        if self._wrap is not None:
            old = sandbox.runtime
            sandbox.runtime = Runtime(old.app, self._wrap(old.stores), sandbox._executor)
            sandbox._invoker = LoopInvoker(sandbox.runtime, sandbox._loop)
        return sandbox
