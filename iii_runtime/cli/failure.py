"""How an error is told: one block on stderr, with its code and what to do."""

from __future__ import annotations

import sys
from typing import IO, Any

import click

from iii_runtime.cli.output import visible
from iii_runtime.core.errors import EnqueueError, IiiError, InvocationError

CALL_FAILED = 1
CANNOT_RUN = 2

_FUNCTIONS = "`iii-runtime functions` lists the functions."
_QUEUES = "`iii-runtime queues` lists the queues."
_HINTS = {
    "function_not_found": _FUNCTIONS,
    "function_not_registered": _FUNCTIONS,
    "queue_not_found": _QUEUES,
    "cron_job_not_found": "`iii-runtime cron list` lists the jobs.",
    "dead_letter_not_found": "`iii-runtime dlq list` lists the dead letters.",
}


class Failure(click.ClickException):
    """An error of the runtime as the result of a command: usage, configuration, store or host."""

    exit_code = CANNOT_RUN

    def __init__(self, error: IiiError) -> None:
        super().__init__(error.message)
        self.error = error

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the block to stderr, or to `file`."""
        print(describe(self.error), file=file or sys.stderr)


class CallFailure(Failure):
    """A call that was made and failed."""

    exit_code = CALL_FAILED


def failure_of(error: IiiError) -> Failure:
    """Return the error as a result of a command."""
    return CallFailure(error) if isinstance(error, InvocationError) else Failure(error)


def describe(error: IiiError) -> str:
    """Return `error: code: message`, and under it, indented, what else is known and what to do."""
    lines = error.message.splitlines() or [""]
    shown = [f"error: {error.code}: {lines[0]}", *(f"  {line}" for line in lines[1:])]
    code = error.code
    if isinstance(error, EnqueueError):
        code = error.reason
        shown.append(f"  reason: {error.reason}")
    if isinstance(error, InvocationError):
        if error.function_id is not None:
            shown.append(f"  function: {error.function_id}")
        shown += [f"  {line}" for line in (error.stacktrace or "").rstrip().splitlines()]
    if code in _HINTS:
        shown.append(f"  {_HINTS[code]}")
    return visible("\n".join(shown))
