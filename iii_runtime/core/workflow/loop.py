"""The event loop a workflow runs on: it has no clock, no thread and no socket, and is driven by facts.

Plain asyncio works on it unchanged. One call of `drain` runs what is ready until nothing is; then the workflow waits
for its next fact.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from zlib import crc32

from iii_runtime.core.runs.errors import UnsafeWorkflowCallError
from iii_runtime.core.workflow.tasks import Never, WorkflowFuture, new_task
from iii_runtime.core.workflow.timers import Timer, Timers, rounded_ms
from iii_runtime.core.workflow.unsafe import ALLOWED, MisplacedCallError, refusal

if TYPE_CHECKING:
    _Loop = Any
else:
    _Loop = asyncio.AbstractEventLoop

T = TypeVar("T")

_swap_current_task: Callable[[Any, Any], Any] | None = getattr(asyncio.tasks, "_swap_current_task", None)
_TASK_MODULE = vars(asyncio.tasks)
_TASK_STEP = "TaskStepMethWrapper"
_SWEEP_FROM = 64


class Handle:
    """A callback that is ready to run."""

    __slots__ = ("args", "callback", "context", "is_cancelled")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context) -> None:
        self.callback = callback
        self.args = args
        self.context = context
        self.is_cancelled = False

    def cancel(self) -> None:
        """Do not run it."""
        self.is_cancelled = True

    def cancelled(self) -> bool:
        """Return whether it will not run."""
        return self.is_cancelled


class WorkflowLoop(_Loop):  # type: ignore[misc]
    """A deterministic event loop.

    Attributes:
        now_ms: Time of the last fact, Unix milliseconds.
        context: The context variables of the workflow: none of the host's.
        is_reading: Whether a query or a predicate runs, which may change nothing.
        is_dying: Whether nothing has an effect any more.
        is_cancelled: Whether the cancellation of the run was asked for.
        fatal: What ends the run, whatever the workflow does about it.
        tasks: Every task that may still run, in the order of creation; asyncio itself would keep them weakly.
        generators: Every asynchronous generator that was begun.
    """

    def __init__(self, seed: str, now_ms: int, timers: Timers, report: Callable[[str, BaseException], None]) -> None:
        self.now_ms = now_ms
        self.context = Context()
        self.is_reading = False
        self.is_dying = False
        self.is_cancelled = False
        self.fatal: BaseException | None = None
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.generators: dict[AsyncGenerator[Any, Any], None] = {}
        self._timers = timers
        self._report = report
        self._ready: deque[Handle] = deque()
        self._number = crc32(seed.encode("utf-8", "surrogatepass")) << 24
        self._sweep_at = _SWEEP_FROM

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Make this the running loop of the thread, and the host's own again afterwards, with its current task."""
        host = asyncio._get_running_loop()  # noqa: SLF001
        task = _swap_current_task(host, None) if _swap_current_task is not None and host is not None else None
        hooks = sys.get_asyncgen_hooks()
        asyncio._set_running_loop(self)  # noqa: SLF001
        sys.set_asyncgen_hooks(firstiter=self._generator_begins, finalizer=None)
        try:
            yield
        finally:
            sys.set_asyncgen_hooks(*hooks)
            asyncio._set_running_loop(host)  # noqa: SLF001
            if _swap_current_task is not None and task is not None:
                _swap_current_task(host, task)

    def drain(self) -> None:
        """Run what is ready, and what becomes ready by that, until nothing is, or until the run has to end."""
        ready = self._ready
        while ready and self.fatal is None:
            handle = ready.popleft()
            if handle.is_cancelled:
                continue
            try:
                handle.context.run(handle.callback, *handle.args)
            except KeyboardInterrupt:
                raise
            except Exception as error:  # noqa: BLE001 - as asyncio does: it is reported, and the others go on
                self._report("a callback raised", error)
            except BaseException as error:  # noqa: BLE001 - SystemExit and its like: they end the run, not the host
                self.fatal = error

    def check(self, called: str) -> None:
        """See that the workflow itself is running, and may act.

        Raises:
            MisplacedCallError: It is not. If that was in the body of a step, the run fails, whatever that body does.
        """
        if self.is_reading:
            raise MisplacedCallError(called, "in a query or a predicate, which may only read")
        if asyncio._get_running_loop() is not self:  # noqa: SLF001
            error = MisplacedCallError(called, "outside its workflow, in the body of a step or in a thread")
            if not self.is_dying and self.fatal is None:
                self.fatal = error
            raise error

    def refuse(self, error: UnsafeWorkflowCallError) -> NoReturn:
        """End the run with an error that its code cannot catch."""
        if self.fatal is None and not self.is_dying:
            self.fatal = error
        raise error

    def clear(self) -> None:
        """Forget what is ready."""
        self._ready.clear()

    def next_number(self) -> int:
        """Return a hash for a task or future: the same on every replay, another one in every run."""
        self._number += 1
        return self._number

    # What asyncio calls.

    def time(self) -> float:
        """Return the time of the last fact in seconds."""
        return self.now_ms / 1000

    def get_debug(self) -> bool:
        """Return that there is no debug mode: it would take other paths."""
        return False

    def is_running(self) -> bool:
        """Return whether this is the running loop."""
        return asyncio._get_running_loop() is self  # noqa: SLF001

    def is_closed(self) -> bool:
        """Return whether the workflow was disposed of."""
        return self.is_dying

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Handle:
        """Run a callback in this drain."""
        handle = Handle(callback, args, copy_context() if context is None else context)
        if self.is_dying and not self.is_reading:
            return handle  # it never runs
        self.check("a change of a future or task")
        if type(callback).__name__ == _TASK_STEP:
            self._adopt(callback.__self__)  # type: ignore[attr-defined]
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Timer | Handle:
        """Set a durable timer; without a delay, run the callback in this drain."""
        return self._call_after(rounded_ms(delay * 1000), callback, args, context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Timer | Handle:
        """Set a durable timer for a time of this loop's clock."""
        return self._call_after(rounded_ms(when * 1000 - self.now_ms), callback, args, context)

    def create_future(self) -> WorkflowFuture[Any]:
        """Return a new future."""
        return WorkflowFuture(self.next_number(), loop=self)

    def create_task(
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
        **_later: object,
    ) -> asyncio.Task[T]:
        """Start a task. A step that was asked for already may be given in place of a coroutine."""
        caller = sys._getframe(1)  # noqa: SLF001
        if caller.f_globals is _TASK_MODULE:
            self._refuse_set_of_coroutines(caller)
        if asyncio.isfuture(coroutine):
            coroutine = _outcome_of(coroutine)
        if self.is_dying and not self.is_reading:
            coroutine.close()
            coroutine = Never()
        number = self.next_number()
        own = copy_context() if context is None else context
        task = new_task(number, coroutine, loop=self, name=str(name or f"task-{number & 0xFFFFFF}"), context=own)
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 - they are disposed of
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report what asyncio has to tell while the workflow runs. At other times a garbage collector speaks."""
        error = context.get("exception")
        if isinstance(error, BaseException) and self.is_running() and not self.is_dying:
            self._report(str(context.get("message")), error)

    def _call_after(
        self, delay_ms: int, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None
    ) -> Timer | Handle:
        if delay_ms <= 0:
            return self.call_soon(callback, *args, context=context)
        self.check("a timer")
        own = copy_context() if context is None else context
        return self._timers.set(self.now_ms + delay_ms, callback, args, own)

    def _adopt(self, task: asyncio.Task[Any]) -> None:
        """Keep a task. One that was made without `create_task` comes here too."""
        if task not in self.tasks:
            if len(self.tasks) >= self._sweep_at:
                self._sweep()
            self.tasks[task] = None

    def _sweep(self) -> None:
        kept = [task for task in self.tasks if not task.done() or is_unheard(task)]
        self.tasks = dict.fromkeys(kept)
        self._sweep_at = max(_SWEEP_FROM, 2 * len(kept))

    def _generator_begins(self, generator: AsyncGenerator[Any, Any]) -> None:
        if len(self.generators) % _SWEEP_FROM == _SWEEP_FROM - 1:
            kept = [each for each in self.generators if getattr(each, "ag_frame", None) is not None]
            self.generators = dict.fromkeys(kept)
        self.generators[generator] = None

    def _refuse_set_of_coroutines(self, frame: Any) -> None:
        while frame is not None and frame.f_globals is _TASK_MODULE:
            if frame.f_code.co_name == "as_completed":
                called = "asyncio.as_completed with coroutines, which starts them in the order of a set,"
                self.refuse(UnsafeWorkflowCallError(called, "tasks: pass what asyncio.create_task returns"))
            frame = frame.f_back


class _Refused:
    """A method of the loop that a workflow cannot use."""

    def __init__(self, method: str) -> None:
        self._method = method

    def __get__(self, loop: WorkflowLoop | None, _owner: type) -> Callable[..., Any]:
        def refuse(*_args: object, **_keywords: object) -> NoReturn:
            error = refusal(self._method)
            if loop is None:
                raise error
            loop.refuse(error)

        return refuse


for _name in vars(asyncio.AbstractEventLoop):
    if not _name.startswith("__") and _name not in vars(WorkflowLoop) and _name not in ALLOWED:
        setattr(WorkflowLoop, _name, _Refused(_name))


def in_workflow() -> bool:
    """Return whether the calling code is that of a workflow, which a replay runs again."""
    return isinstance(asyncio._get_running_loop(), WorkflowLoop)  # noqa: SLF001


def is_unheard(future: asyncio.Future[Any]) -> bool:
    """Return whether a future or task has failed and nobody has looked at its error."""
    return bool(getattr(future, "_log_traceback", False))


def silence(future: asyncio.Future[Any]) -> None:
    """Keep asyncio from telling of an unheard error when the object is collected, which is at a random moment."""
    future._log_traceback = False  # noqa: SLF001


async def _outcome_of(future: Any) -> Any:
    return await future
