"""What a workflow cannot do, and what it does in its place."""

from __future__ import annotations

from iii_runtime.core.errors import IiiError
from iii_runtime.core.runs.errors import UnsafeWorkflowCallError

IN_A_STEP = "a step for it: await ctx.step(function, ...)"
ON_THE_LOOP = "plain asyncio: create_task, gather, wait, timeout, TaskGroup"
ALLOWED = {"default_exception_handler"}

_ON_THE_LOOP = {
    "call_soon_threadsafe",
    "close",
    "run_forever",
    "run_until_complete",
    "set_debug",
    "set_default_executor",
    "set_exception_handler",
    "set_task_factory",
    "shutdown_asyncgens",
    "shutdown_default_executor",
    "stop",
}


class MisplacedCallError(UnsafeWorkflowCallError):
    """A workflow's context was used where its workflow does not run: in the body of a step, a thread, a query."""

    def __init__(self, called: str, where: str) -> None:
        IiiError.__init__(self, f"{called} was called {where}; it works in the code of its workflow alone.")


def refusal(method: str) -> UnsafeWorkflowCallError:
    """Return the error for a method of the event loop that reaches out of the workflow."""
    called = "run_in_executor (or asyncio.to_thread)" if method == "run_in_executor" else f"loop.{method}"
    return UnsafeWorkflowCallError(called, ON_THE_LOOP if method in _ON_THE_LOOP else IN_A_STEP)
