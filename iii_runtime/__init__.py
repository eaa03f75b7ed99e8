"""Durable workflow orchestration in plain Python: functions, queues, state, streams, schedules.

Write a worker against these names, run it with `iii-runtime dev`.
"""

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

__all__ = [
    "ApiRequest",
    "ApiResponse",
    "Cron",
    "DurableSubscriber",
    "EnqueueError",
    "EnqueueResult",
    "FunctionRef",
    "Http",
    "IamCaller",
    "IiiError",
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
    "Queue",
    "RegistrationError",
    "StepTracker",
    "Subscribe",
    "Trigger",
    "TriggerAction",
    "TriggerActionEnqueue",
    "TriggerActionVoid",
    "TriggerRequest",
    "Worker",
    "current_invocation",
    "register_worker",
    "secret",
]
