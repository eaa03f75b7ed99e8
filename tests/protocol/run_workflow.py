"""The workflows of the search: each is a script, and what it wants next follows from the facts it was fed.

A fact is a short text. `A=1` is outcome 1 of step A, `waiting` a registered deadline, `timeout` that it has passed, and
`sent` a sent call. A drained inbox item is the fact of its own name: `signal 1`, `cancel`, `result 0`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

Kind = Literal["step", "wait", "call", "continue", "close"]

CANCEL = "cancel"
CLEAN_UP = "clean-up"
SENT = "sent"
TIMEOUT = "timeout"
WAITING = "waiting"

Facts = tuple[str, ...]


class Wish(NamedTuple):
    """What a workflow wants from outside: `name` is that of the step, or the status to close with."""

    kind: Kind
    name: str = ""


class Workflow(Protocol):
    """A deterministic workflow."""

    def wish(self, run: int, facts: Facts) -> Wish:
        """Return what a run wants next, given the facts it was fed in this order."""


class Script:
    """A workflow that does one thing after the other.

    Args:
        parts: For each run of a chain what it does: a step's name in capitals, `signal`, `call` or `continue`. Runs
            beyond the last one do what that one does.
    """

    def __init__(self, *parts: tuple[str, ...]) -> None:
        self._parts = parts
        self._known: dict[tuple[int, Facts], Wish] = {}

    def __repr__(self) -> str:
        return f"Script{self._parts}"

    def wish(self, run: int, facts: Facts) -> Wish:
        """Return what a run wants next."""
        known = self._known.get((run, facts))
        if known is None:
            known = self._known[run, facts] = self._find(run, facts)
        return known

    def _find(self, run: int, facts: Facts) -> Wish:
        if CANCEL in facts and self.wish(run, facts[: facts.index(CANCEL)]).kind != "close":
            return Wish("close", "cancelled") if has_outcome(facts, CLEAN_UP) else Wish("step", CLEAN_UP)
        waits = 0
        for part in self._parts[min(run, len(self._parts)) - 1]:
            if part == "continue":
                return Wish("continue")
            if part.isupper():
                if not has_outcome(facts, part):
                    return Wish("step", part)
                continue
            waits += 1
            if count_resolved(facts) < waits:
                return Wish("call") if part == "call" and SENT not in facts else Wish("wait")
        return Wish("close", "completed")


class AnyWorkflow:
    """A workflow whose wishes nobody knows: what it does is read from a trace."""

    def wish(self, _run: int, _facts: Facts) -> Wish:
        """Return that it may be waiting."""
        return Wish("wait")


def has_outcome(facts: Facts, step: str) -> bool:
    """Return whether a step has an outcome."""
    return any(fact.partition("=")[0] == step for fact in facts)


def count_resolved(facts: Facts) -> int:
    """Return how many waits of a script are over; each takes one answer from outside."""
    return sum(fact == TIMEOUT or fact.startswith(("signal ", "result ")) for fact in facts)


def fresh(items: Facts, facts: Facts) -> Facts:
    """Return the inbox items that are no facts yet; one that was delivered twice counts once."""
    return tuple(item for item in dict.fromkeys(items) if item not in facts)
