"""The end of a workflow that is put to sleep: its coroutines are ended here, and never by the garbage collector.

A suspended coroutine that is collected runs its `finally` blocks at a random moment, on a random thread, within
whatever loop runs there, which may be that of another run. So each is ended by an exception of our own that is raised
again and again, while whatever it asks for succeeds without effect and never completes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

from iii_runtime.core.workflow.loop import WorkflowLoop, silence

_log = logging.getLogger("iii_runtime.run")
_THROWS = 20
_zombies: list[object] = []


class Disposed(BaseException):
    """The workflow is put to sleep. It passes through `except Exception`; what it does on its way has no effect."""


def zombie_count() -> int:
    """Return how many coroutines of this process would not end. They are kept, asleep, until the process ends."""
    return len(_zombies)


def dispose_of(loop: WorkflowLoop, workflow: str) -> None:
    """End every coroutine of a loop. It stays dead: whatever is called on it has no effect."""
    loop.is_dying = True
    loop.clear()
    with loop.entered():
        for task in reversed(list(loop.tasks)):
            context = getattr(task, "own_context", loop.context)
            if task.done():
                silence(task)
            elif not context.run(_end_task, task):
                _keep(task, workflow)
        for generator in reversed(list(loop.generators)):
            if not loop.context.run(_end_generator, generator):
                _keep(generator, workflow)
    loop.clear()
    loop.tasks.clear()
    loop.generators.clear()


def _end_task(task: asyncio.Task[Any]) -> bool:
    """End a task's coroutine, as the current task: asyncio's own blocks ask for it."""
    coroutine: Any = task.get_coro()
    asyncio.tasks._enter_task(task.get_loop(), task)  # noqa: SLF001
    try:
        return _exhaust(coroutine.throw)
    finally:
        asyncio.tasks._leave_task(task.get_loop(), task)  # noqa: SLF001


def _end_generator(generator: AsyncGenerator[Any, Any]) -> bool:
    for _ in range(_THROWS):
        if getattr(generator, "ag_frame", None) is None:
            return True
        step: Any = generator.athrow(Disposed())
        try:
            step.send(None)
        except StopIteration:  # it has yielded once more
            continue
        except BaseException:  # noqa: BLE001 - Disposed, or what the generator made of it: it has ended
            return True
        if not _exhaust(step.throw):
            return False
    return False


def _exhaust(throw: Callable[[BaseException], Any]) -> bool:
    """Raise in a coroutine until it ends; return whether it did."""
    for _ in range(_THROWS):
        try:
            throw(Disposed())
        except BaseException:  # noqa: BLE001 - it has ended, by whatever it made of ours; nobody waits for that
            return True
    return False


def _keep(coroutine: object, workflow: str) -> None:
    _zombies.append(coroutine)
    message = "a coroutine catches every exception in a loop and cannot be ended; it is kept until the process ends"
    _log.warning(message, extra={"iii": {"workflow": workflow, "zombies": len(_zombies)}})
