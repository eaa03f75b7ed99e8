"""What a test does with the requests of all handlers: record them, kill a sandbox at one, run something in between."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.aws.calls import Answered, Call, Reply
from tests.aws.invocations import Invocation


@dataclass(slots=True)
class Recorder:
    """Remembers every request and its answer.

    Attributes:
        made: Function and request, in order.
    """

    made: list[tuple[str, Call, Reply]] = field(default_factory=list)

    def before(self, _invocation: Invocation, _call: Call) -> Answered | None:
        """Let it be sent."""
        return None

    def after(self, invocation: Invocation, call: Call, reply: Reply) -> None:
        """Remember it."""
        self.made.append((invocation.function, call, reply))

    def ends(self, _invocation: Invocation) -> None:
        """Take no note."""


@dataclass(slots=True)
class At:
    """Does something at one point: before one of the requests of all handlers, or at the end of one.

    Points are numbered from 0: each request, and each end of a handler that has returned.

    Attributes:
        point: The point.
        act: What is done there, with the invocation that is at it.
        counts: Which invocations have points.
        passed: How many points there were so far.
        where: What the invocation was about to do at the point.
    """

    point: int
    act: Callable[[Invocation], None]
    counts: Callable[[Invocation], bool] = lambda _: True
    passed: int = 0
    where: str = ""

    def before(self, invocation: Invocation, call: Call) -> Answered | None:
        """Count a request."""
        self._pass(invocation, str(call))
        return None

    def after(self, invocation: Invocation, call: Call, reply: Reply) -> None:
        """Take no note."""

    def ends(self, invocation: Invocation) -> None:
        """Count an end."""
        self._pass(invocation, "its end")

    def _pass(self, invocation: Invocation, what: str) -> None:
        if not self.counts(invocation):
            return
        point, self.passed = self.passed, self.passed + 1
        if point == self.point:
            self.where = f"{invocation.function} before {what}"
            self.act(invocation)


@dataclass(slots=True)
class Meddling:
    """Meddles with requests.

    Attributes:
        meddle: Returns the answer to a request in place of the service's, None to let it be sent; it may also kill the
            invocation.
        answered: What was answered in place of a service, in order.
    """

    meddle: Callable[[Invocation, Call], Answered | None]
    answered: list[Call] = field(default_factory=list)

    def before(self, invocation: Invocation, call: Call) -> Answered | None:
        """Meddle with a request."""
        answered = self.meddle(invocation, call)
        if answered is not None:
            self.answered.append(call)
        return answered

    def after(self, invocation: Invocation, call: Call, reply: Reply) -> None:
        """Take no note."""

    def ends(self, invocation: Invocation) -> None:
        """Take no note."""
