"""The public interface is a decision, not an accident."""

from __future__ import annotations

import iii_runtime
import iii_runtime.testing

PUBLIC = [
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

TEST_KIT = ["Harness", "Reply", "SkipClock", "StoreError", "Stores", "StreamChange"]


def test_the_root_exports_exactly_the_decided_names() -> None:
    assert iii_runtime.__all__ == PUBLIC


def test_the_exported_names_are_sorted_and_exist() -> None:
    assert sorted(iii_runtime.__all__, key=lambda name: (name.upper() != name and name[0].islower(), name)) == PUBLIC
    for name in PUBLIC:
        assert getattr(iii_runtime, name).__module__.startswith(("iii_runtime.core", "iii_runtime.hosts.client"))


def test_every_public_name_has_a_docstring() -> None:
    for name in PUBLIC:
        assert (getattr(iii_runtime, name).__doc__ or "").strip(), name


def test_the_test_kit_exports_exactly_the_decided_names() -> None:
    assert iii_runtime.testing.__all__ == TEST_KIT
    for name in TEST_KIT:
        assert (getattr(iii_runtime.testing, name).__doc__ or "").strip(), name
