"""The typed errors of the runtime, grouped by what happens next.

`IiiError` is the one root. `InvocationError` is what a caller of `trigger` sees; its codes and its text form are those
of the iii SDK. `NonRetryableError` is what a handler raises to say that another attempt cannot help.
"""

from __future__ import annotations

from collections.abc import Mapping


class IiiError(Exception):
    """Root of every error the runtime raises on purpose.

    Attributes:
        code: A stable word for programs.
        message: What happened, where, and what to do.
    """

    code: str = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code


class InvocationError(IiiError):
    """A call through `trigger` failed.

    Compatible with iii SDK 0.20 and later: the same attributes, and `str(error)` is `"code: message"`.

    Attributes:
        code: What went wrong, by what was called:

            - The request itself: `request_invalid`, `payload_not_json`, `payload_too_large`.
            - A function: `function_not_found`; `VALIDATION_FAILED`, its input does not fit its model; `TIMEOUT`;
              `invocation_failed`, it raised, was called too deep, or returned no JSON; `function_busy`, its
              concurrency is used up; `not_in_uses`, its caller's `uses` does not name it; `not_forwarded`, the
              dispatcher of a stage does not run it for whoever asked.
            - The store of a function that runs elsewhere: the code of its `StoreError`; they are listed there.
            - A workflow: `workflow_not_found`; `workflow_id_invalid`, its input has none where it should;
              `workflows_unavailable`, this host cannot run workflows yet; `run_failed`, `run_cancelled`,
              `run_terminated`, `run_timed_out`: its run has ended without a result.
            - `iii::runs::*`: `run_request_invalid`; `run_not_found`, `run_closed`, `run_already_started`, `inbox_full`,
              `query_failed`, `workflow_diverged`, `limit_exceeded`, `start_contended`: nothing was changed.
            - Enqueue: `enqueue_error`, always an `EnqueueError`, whose `reason` tells more.
            - `state::*`: `SET_ERROR`, `GET_ERROR`, `DELETE_ERROR`, `UPDATE_ERROR`, `LIST_ERROR`, `LIST_GROUPS_ERROR`,
              `VALUE_TOO_LARGE`.
            - `stream::*`: `STREAM_SET_ERROR`, `STREAM_GET_ERROR`, `STREAM_DELETE_ERROR`, `STREAM_UPDATE_ERROR`,
              `STREAM_LIST_ERROR`, `STREAM_LIST_GROUPS_ERROR`, `STREAM_LIST_ALL_ERROR`, `STREAM_SEND_ERROR`.
            - Topics: `topic_not_set`.
            - Queues and dead letters: `queue_not_set`, `message_id_not_set`, `queue_not_found`, `redrive_failed`,
              `discard_failed`, `purge_failed`, `dlq_failed`.
            - Cron: `cron_busy`, `cron_job_not_found`.
        function_id: The function that was called.
        stacktrace: The handler's traceback, where there is one.
        invocation_id: Identity of the failed invocation, where it had one.
        about: What programs want to know of it: `workflow_id`, `run_id` and `status` of the run it is about, say.
    """

    def __init__(
        self,
        code: str,
        message: str,
        function_id: str | None = None,
        stacktrace: str | None = None,
        invocation_id: str | None = None,
        *,
        about: Mapping[str, str | int] | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.about = dict(about or {})
        self.function_id = function_id
        self.stacktrace = stacktrace
        self.invocation_id = invocation_id

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class EnqueueError(InvocationError):
    """A message was refused before it was stored. Nothing was enqueued.

    Attributes:
        reason: `queue_not_found`, `function_not_registered`, `function_not_allowed`, `delay_invalid`,
            `delay_not_supported`, `dedupe_id_invalid`, `payload_not_json`, `group_field_missing`,
            `group_field_null`, `not_in_uses`, `too_many_hops`, `payload_too_large` or `enqueue_failed` (the
            one case in which the message may have been accepted all the same).
    """

    def __init__(self, reason: str, message: str, function_id: str | None = None) -> None:
        super().__init__("enqueue_error", message, function_id)
        self.reason = reason


class NonRetryableError(IiiError):
    """Raise it in a handler when no further attempt can succeed.

    From a queue the message goes straight to the dead-letter queue, with this error as its cause.
    """

    code = "non_retryable"

    def __init__(self, message: str = "this cannot succeed by trying again") -> None:
        super().__init__(message)


class InputInvalidError(NonRetryableError):
    """The input of a typed handler does not fit its model: 422 over http, dead letter from a queue.

    Attributes:
        details: One entry per problem: `{"loc": [...], "msg": ..., "type": ...}`.
    """

    code = "VALIDATION_FAILED"

    def __init__(self, message: str, details: list[dict[str, object]]) -> None:
        super().__init__(message)
        self.details = details


class RegistrationError(IiiError, ValueError):
    """A function or trigger was registered in a way that cannot work. Names the id and where it was registered."""

    code = "registration_invalid"


class NotAttachedError(IiiError, RuntimeError):
    """`trigger` was called on a worker that no host runs, for instance at import time."""

    code = "not_attached"


class RemoteHandlerError(IiiError):
    """A handler that ran elsewhere raised: what is known of its exception.

    Attributes:
        type_name: Name of the exception's class.
        is_final: Whether it was a `NonRetryableError`.
    """

    code = "handler_failed"

    def __init__(self, type_name: str, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.type_name = type_name
        self.is_final = is_final


class FunctionInterruptedError(RemoteHandlerError):
    """The host of a function died or broke off while it ran, and nobody knows how far it came.

    It is the `__cause__` of what a caller sees. A message that was interrupted has not failed its attempt.
    """

    code = "function_interrupted"


class FunctionBusyError(IiiError):
    """A function could not be started: its concurrency is used up, or its host is not ready. It did not run."""

    code = "function_busy"


class DeadlineExceededError(IiiError):
    """A function's body did not end in time. Its own `TimeoutError` is another thing: a failure of the body."""

    code = "deadline_exceeded"


class StoreError(IiiError):
    """The store could not do what it was asked. Nothing of the failed operation was written.

    Codes: `store_full`, `store_newer_schema`, `store_unavailable`, `store_locked`, `store_corrupt`; on AWS also
    `store_throttled`, `store_missing`, `store_denied`, `store_conflict`, `store_item_too_large`. `blob_missing`: what a
    letter or value links to is gone. `letters_left`: some letters are damaged; the others were moved.
    """

    code = "store_unavailable"


class HostError(IiiError):
    """The host cannot start or go on: `port_in_use`, `worker_not_found`, `worker_import_failed`, ..."""

    code = "host_error"


def message_of(error: BaseException) -> str:
    """Return the text of an error, never empty. It does not raise, whatever the error's own methods do."""
    try:
        return str.__str__(str(error) or repr(error)) or type(error).__name__
    except BaseException as second:  # noqa: BLE001 - user code, which may even exit; it is the first error that counts
        return f"{type(error).__name__} (its text cannot be had: {type(second).__name__})"
