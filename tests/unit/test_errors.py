"""What the documentation of the errors says is what the code raises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import iii_runtime
from iii_runtime import EnqueueError, InvocationError
from iii_runtime.core.errors import message_of

PACKAGE = Path(iii_runtime.__file__).parent
CODE_ARGUMENT = {"InvocationError": 0, "failing_as": 0, "Fields": 1}
TAKEN_OVER = {
    "VALIDATION_FAILED",
    "VALUE_TOO_LARGE",
    "cron_busy",
    "cron_job_not_found",
    "enqueue_error",
    "function_busy",
    "inbox_full",
    "limit_exceeded",
    "payload_too_large",
    "query_failed",
    "run_already_started",
    "run_cancelled",
    "run_closed",
    "run_failed",
    "run_not_found",
    "run_terminated",
    "run_timed_out",
    "start_contended",
    "workflow_diverged",
}
"""Codes that come with another error, and are written down there."""


def written(argument: dict[str, int]) -> set[str]:
    """Return the texts that are passed to these calls at this position; the command line has codes of its own."""
    return {text for path in PACKAGE.rglob("*.py") if "cli" not in path.parts for text in texts_in(path, argument)}


def texts_in(path: Path, argument: dict[str, int]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in argument:
            given = node.args[argument[node.func.id] :][:1]
            yield from (each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str))


def documented(error: type[Exception], attribute: str) -> set[str]:
    section = re.search(rf"^        {attribute}: (.*?)(?=^        \w|^    \S|\Z)", error.__doc__ or "", re.M | re.S)
    assert section is not None
    return set(re.findall(r"`([A-Za-z]+_[A-Za-z_]+|TIMEOUT)`", section[1]))


def test_every_code_of_an_invocation_error_is_documented_and_raised() -> None:
    codes = written(CODE_ARGUMENT)
    assert len(codes) > 20
    assert documented(InvocationError, "code") == codes | TAKEN_OVER


def test_every_reason_of_an_enqueue_error_is_documented_and_raised() -> None:
    assert documented(EnqueueError, "reason") == written({"EnqueueError": 0})


class SilentError(Exception):
    def __repr__(self) -> str:
        return ""


class ExitingError(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no"), "no"),
        (ValueError(), "ValueError()"),
        (KeyboardInterrupt(), "KeyboardInterrupt()"),
        (SilentError(), "SilentError"),
        (ExitingError("x"), "ExitingError (its text cannot be had: SystemExit)"),
    ],
)
def test_every_error_has_a_text_and_having_it_ends_nothing(error: BaseException, text: str) -> None:
    assert message_of(error) == text
