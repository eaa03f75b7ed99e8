"""Tasks and futures whose hash is their number, so that sets of them have the same order on every replay.

`asyncio.wait` returns sets, and the order of a set follows the hashes: an object's own hash is its address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class WorkflowFuture(asyncio.Future[T]):
    """A future of a workflow. Without an outcome it waits for ever."""

    def __init__(self, number: int, *, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class WorkflowTask(asyncio.Task[T]):
    """A task of a workflow.

    Attributes:
        own_context: The context it runs in.
    """

    own_context: Context
    _number: int

    def __hash__(self) -> int:
        return self._number


def new_task(
    number: int, coroutine: Coroutine[Any, Any, T], *, loop: asyncio.AbstractEventLoop, name: str, context: Context
) -> WorkflowTask[T]:
    """Return a new task. Its hash is set before the constructor runs, which puts the task into a set of all tasks."""
    task: WorkflowTask[T] = WorkflowTask.__new__(WorkflowTask)
    task._number = number  # noqa: SLF001 - a part of the construction
    task.own_context = context
    task.__init__(coroutine, loop=loop, name=name, context=context)  # type: ignore[misc]
    return task


class Never(Coroutine[Any, Any, Any]):
    """A coroutine that does nothing and needs no end: the body of a task that a dying workflow starts."""

    def send(self, _value: Any) -> Any:
        """Do nothing."""

    def throw(self, *_error: Any) -> Any:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def __await__(self) -> Any:
        yield
