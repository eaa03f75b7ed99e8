"""One invocation of a Lambda, as its handler and as the test sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.ports.clock import Clock
from tests.aws.calls import Answered, Call, Reply


class Killed(BaseException):
    """The sandbox is dead. Nothing can catch it and go on: each further request of the sandbox raises it again."""


class Overseer(Protocol):
    """Decides about the requests of all invocations: counts, refuses, kills."""

    def before(self, invocation: Invocation, call: Call) -> Answered | None:
        """Take note of a request; an answer keeps it from being sent."""
        ...

    def after(self, invocation: Invocation, call: Call, reply: Reply) -> None:
        """Take note of an answer."""
        ...

    def ends(self, invocation: Invocation) -> None:
        """Take note that a handler has returned and its answer is about to leave."""
        ...


@dataclass(slots=True, eq=False)
class Invocation:
    """One invocation, and what Lambda tells its handler of it.

    Attributes:
        function: Name of the function on AWS.
        aws_request_id: Identity.
        timeout: How long it may take.
        deadline: When its time is up.
        overseer: Sees its requests.
        clock: The clock.
        services: What answers the requests to a service, in place of moto.
        is_dead: Whether its sandbox was killed.
        sandbox: What it runs in, once that is known.
    """

    function: str
    aws_request_id: str
    timeout: timedelta
    deadline: datetime
    overseer: Overseer | None
    clock: Clock
    services: Mapping[str, Callable[[Call], Answered]]
    is_dead: bool = False
    sandbox: Sandbox | None = None

    def get_remaining_time_in_millis(self) -> int:
        """Return how long it may go on, by the virtual clock."""
        return max((self.deadline - self.clock.now()) // timedelta(milliseconds=1), 0)

    def kill(self) -> None:
        """End its sandbox at this moment."""
        self.is_dead = True

    def before(self, call: Call) -> Answered | None:
        """See a request of this invocation."""
        self.check()
        if self.overseer is not None:
            answered = self.overseer.before(self, call)
            self.check()
            if answered is not None:
                return answered
        service = self.services.get(call.service)
        return None if service is None else service(call)

    def after(self, call: Call, reply: Reply) -> None:
        """See an answer to this invocation."""
        if self.overseer is not None:
            self.overseer.after(self, call, reply)
        self.check()

    def ends(self) -> None:
        """Let the overseer kill it at its very end."""
        if self.overseer is not None:
            self.overseer.ends(self)
        self.check()

    def check(self) -> None:
        """Raise `Killed` if it is dead."""
        if self.is_dead:
            raise Killed(self.function)
