"""How an error is told: one block on stderr, with its code and what to do."""

from __future__ import annotations

import os
import sys
from typing import IO, Any

import click

from iii_runtime.cli.output import json_text, visible
from iii_runtime.cli.standard_streams import OutputLostError
from iii_runtime.core.errors import EnqueueError, HostError, IiiError, InvocationError

CALL_FAILED = 1
CANNOT_RUN = 2
OUTPUT_LOST = os.EX_IOERR
"""How a host tells its supervisor that stdout cannot be written; its exit code 1 could have any cause."""

_FUNCTIONS = ("functions", "lists the functions.")
_HINTS = {
    "function_not_found": _FUNCTIONS,
    "function_not_registered": _FUNCTIONS,
    "queue_not_found": ("queues", "lists the queues."),
    "cron_job_not_found": ("cron list", "lists the jobs."),
    "dead_letter_not_found": ("dlq list", "lists the dead letters."),
}
"""By code the command that helps, and what it does."""


class Failure(click.ClickException):
    """An error of the runtime as the result of a command: usage, configuration, store or host."""

    exit_code = CANNOT_RUN

    def __init__(self, error: IiiError, *, options: str = "") -> None:
        super().__init__(error.message)
        self.error = error
        self.options = options

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the block to stderr, or to `file`."""
        print(describe(self.error, options=self.options), file=file or sys.stderr)


class CallFailure(Failure):
    """A call that was made and failed."""

    exit_code = CALL_FAILED


class _SupervisedFailure(Failure):
    exit_code = OUTPUT_LOST


def failure_of(error: IiiError, *, options: str = "") -> Failure:
    """Return the error as a result of a command.

    Args:
        error: What happened.
        options: Those that choose a stage, for the command that helps.
    """
    kind = CallFailure if isinstance(error, InvocationError) else Failure
    return kind(error, options=options)


def failure_of_output(lost: OutputLostError, *, is_supervised: bool = False) -> Failure:
    """Return lost output as a result of a command, or of a host under a supervisor."""
    error = HostError(f"what was printed cannot be written to stdout: {lost}.", code="output_lost")
    return _SupervisedFailure(error) if is_supervised else CallFailure(error)


def tell_program(error: click.ClickException) -> None:
    """Write an error to stderr as an object on one line, `{"error": {code, message, function_id?, reason?}}`."""
    members = {"code": "usage", "message": error.format_message()}
    if isinstance(error, Failure):
        members = _members(error.error)
    print(json_text({"error": {**members}}, compact=True), file=sys.stderr)


def describe(error: IiiError, *, options: str = "") -> str:
    """Return `error: code: message`, and under it, indented, what else is known and what to do; see `failure_of`."""
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
        command, what = _HINTS[code]
        shown.append(f"  `{' '.join(filter(None, ('iii-runtime', command, options)))}` {what}")
    return visible("\n".join(shown))


def _members(error: IiiError) -> dict[str, str]:
    members = {"code": error.code, "message": error.message}
    if isinstance(error, InvocationError) and error.function_id is not None:
        members["function_id"] = error.function_id
    if isinstance(error, EnqueueError):
        members["reason"] = error.reason
    return members
