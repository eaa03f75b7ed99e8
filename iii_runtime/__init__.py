"""Durable workflow orchestration in plain Python: functions, queues, state, streams, schedules.

Write a worker against these names, run it with `iii-runtime dev`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from iii_runtime.core.api_types import ApiRequest, ApiResponse, IamCaller, JwtCaller
from iii_runtime.core.errors import (
    EnqueueError,
    IiiError,
    InputInvalidError,
    InvocationError,
    NonRetryableError,
    NotAttachedError,
    RegistrationError,
)
from iii_runtime.core.invocation import Invocation, current_invocation
from iii_runtime.core.logger import Logger
from iii_runtime.core.secrets import secret
from iii_runtime.core.step_tracker import StepTracker
from iii_runtime.core.trigger_request import (
    EnqueueResult,
    TriggerAction,
    TriggerActionEnqueue,
    TriggerActionVoid,
    TriggerRequest,
)
from iii_runtime.core.triggers import Cron, DurableSubscriber, Http, OnState, OnStream, Queue, Subscribe
from iii_runtime.core.worker import FunctionRef, Trigger, Worker, register_worker
from iii_runtime.core.worker_options import InitOptions

if TYPE_CHECKING:
    from iii_runtime.core.client.handle import RunHandle
    from iii_runtime.core.runs.errors import (
        InboxFullError,
        QueryError,
        RunAlreadyStartedError,
        RunCancelledError,
        RunClosedError,
        RunFailedError,
        RunNotCompletedError,
        RunNotFoundError,
        RunTerminatedError,
        RunTimedOutError,
        StepError,
        StepInterruptedError,
        StepTimeoutError,
    )
    from iii_runtime.core.runs.policies import (
        IdConflictPolicy,
        IdReusePolicy,
    )
    from iii_runtime.core.workflow.context import (
        WorkflowContext,
    )
    from iii_runtime.core.workflow.retry import (
        RetryAfter,
        RetryPolicy,
    )
    from iii_runtime.core.workflow.saga import (
        Saga,
    )
    from iii_runtime.hosts.client import Client

__all__ = [
    "ApiRequest",
    "ApiResponse",
    "Client",
    "Cron",
    "DurableSubscriber",
    "EnqueueError",
    "EnqueueResult",
    "FunctionRef",
    "Http",
    "IamCaller",
    "IdConflictPolicy",
    "IdReusePolicy",
    "IiiError",
    "InboxFullError",
    "InitOptions",
    "InputInvalidError",
    "Invocation",
    "InvocationError",
    "JwtCaller",
    "Logger",
    "NonRetryableError",
    "NotAttachedError",
    "OnState",
    "OnStream",
    "QueryError",
    "Queue",
    "RegistrationError",
    "RetryAfter",
    "RetryPolicy",
    "RunAlreadyStartedError",
    "RunCancelledError",
    "RunClosedError",
    "RunFailedError",
    "RunHandle",
    "RunNotCompletedError",
    "RunNotFoundError",
    "RunTerminatedError",
    "RunTimedOutError",
    "Saga",
    "StepError",
    "StepInterruptedError",
    "StepTimeoutError",
    "StepTracker",
    "Subscribe",
    "Trigger",
    "TriggerAction",
    "TriggerActionEnqueue",
    "TriggerActionVoid",
    "TriggerRequest",
    "Worker",
    "WorkflowContext",
    "current_invocation",
    "register_worker",
    "secret",
]

# What workflows alone use is loaded when it is asked for: other functions start without it.
_OF_WORKFLOWS = {
    "Client": "iii_runtime.hosts.client",
    "IdConflictPolicy": "iii_runtime.core.runs.policies",
    "IdReusePolicy": "iii_runtime.core.runs.policies",
    "InboxFullError": "iii_runtime.core.runs.errors",
    "QueryError": "iii_runtime.core.runs.errors",
    "RetryAfter": "iii_runtime.core.workflow.retry",
    "RetryPolicy": "iii_runtime.core.workflow.retry",
    "RunAlreadyStartedError": "iii_runtime.core.runs.errors",
    "RunCancelledError": "iii_runtime.core.runs.errors",
    "RunClosedError": "iii_runtime.core.runs.errors",
    "RunFailedError": "iii_runtime.core.runs.errors",
    "RunHandle": "iii_runtime.core.client.handle",
    "RunNotCompletedError": "iii_runtime.core.runs.errors",
    "RunNotFoundError": "iii_runtime.core.runs.errors",
    "RunTerminatedError": "iii_runtime.core.runs.errors",
    "RunTimedOutError": "iii_runtime.core.runs.errors",
    "Saga": "iii_runtime.core.workflow.saga",
    "StepError": "iii_runtime.core.runs.errors",
    "StepInterruptedError": "iii_runtime.core.runs.errors",
    "StepTimeoutError": "iii_runtime.core.runs.errors",
    "WorkflowContext": "iii_runtime.core.workflow.context",
}


if not TYPE_CHECKING:  # a type checker knows the names from above, and refuses all others

    def __getattr__(name: str) -> object:
        """Load a name of workflows."""
        if name not in _OF_WORKFLOWS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_OF_WORKFLOWS[name]), name)


def __dir__() -> list[str]:
    """Return all names."""
    return sorted({*globals(), *_OF_WORKFLOWS})
