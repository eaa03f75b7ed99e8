"""The Lambda of a registered function: whatever starts the function, arrives here."""

from __future__ import annotations

import logging

from iii_runtime.core.call import Call
from iii_runtime.core.errors import InvocationError
from iii_runtime.core.payload import Json
from iii_runtime.core.remote import RemoteCall, RemoteTick, RemoteTrigger, decode_request, is_request
from iii_runtime.core.trace import is_traceparent
from iii_runtime.engine.conditions import invoke_if
from iii_runtime.hosts.aws_lambda.answers import answer_to, call_of
from iii_runtime.hosts.aws_lambda.bootstrap import entry_point
from iii_runtime.hosts.aws_lambda.context import LambdaContext
from iii_runtime.hosts.aws_lambda.queue_batch import consume_event
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.aws_lambda.sqs_event import is_sqs_event
from iii_runtime.hosts.unknown_event import EventUnknownError

_log = logging.getLogger("iii_runtime.function")


def handle(sandbox: Sandbox, event: object, context: LambdaContext) -> Json:
    """Run the function for an event.

    - A request of the HTTP API (payload format 2.0) is answered; whatever goes wrong is an answer too.
    - Messages of its queue: a partial batch response. Nothing is reported as done that was not.
    - A call by another function, or a cron tick: `{"ok": result}` or `{"error": {...}}`. What fails is logged, and is
      no error of the invocation: nobody waits for a void call, and none is tried again. Only a direct call has a
      result; that of a message or of any other trigger is for nobody, and may be anything.

    Raises:
        EventUnknownError: None of these, or a member of it cannot be read.
        HostError: `queue_unknown`.
        PayloadError: `request_unreadable`.
    """
    if is_request(event):
        return _carry_out(sandbox, decode_request(event), context)
    if is_sqs_event(event):
        return consume_event(sandbox, event, context)
    # Loaded here: most functions have no http route.
    from iii_runtime.hosts.aws_lambda.http_event import answer_http  # noqa: PLC0415

    return answer_http(sandbox, event, context)


def _carry_out(sandbox: Sandbox, request: RemoteCall | RemoteTick | RemoteTrigger, context: LambdaContext) -> Json:
    match request:
        case RemoteCall(is_forwarded=False):
            return sandbox.run(lambda: answer_to(sandbox, _call(sandbox, request)), context)
        case RemoteTick():
            # Loaded here: most functions have no schedule.
            from iii_runtime.hosts.aws_lambda.cron_event import run_tick  # noqa: PLC0415

            return sandbox.run(lambda: answer_to(sandbox, run_tick(sandbox, request, context)), context)
        case _:
            raise EventUnknownError("the Lambda of a function carries out calls and cron ticks, and nothing else.")


async def _call(sandbox: Sandbox, request: RemoteCall) -> Json:
    own, called = sandbox.environment.function_id, request.call.function_id
    if called != own:
        message = f"the Lambda of function '{own}' was asked for '{called}', whose code it does not have."
        raise InvocationError("function_not_found", message, called)
    invoker = sandbox.runtime.invoker
    try:
        if request.call.condition is not None and invoker.is_remote(request.call.condition):
            raise _foreign_condition(request.call)
        call = await call_of(sandbox, request)
        if call.source == "direct":
            return await invoker.invoke(call)
        await invoke_if(invoker, call.condition, call)  # its result is neither checked nor kept, as on every host
    except InvocationError as error:
        # A void call has nobody else to tell.
        _log.error(
            "call failed", extra={"iii": {**_fields(request.call), "error": str(error), "stack": error.stacktrace}}
        )
        raise
    else:
        return None


def _foreign_condition(call: Call) -> InvocationError:
    """Return the refusal of a call whose condition would have to be called in its turn, with the rights of this role.

    The conditions of the function's own triggers run here.
    """
    message = (
        f"function '{call.function_id}' was asked to run under the condition '{call.condition}', which none of its "
        "triggers has. If one had it until the last deployment, the next attempt comes with the condition of today."
    )
    return InvocationError("function_not_found", message, call.function_id)


def _fields(call: Call) -> dict[str, object]:
    fields: dict[str, object] = {"function_id": call.function_id, "source": call.source}
    if call.receipt is not None:
        fields |= {"queue": call.queue, "message_receipt_id": call.receipt, "attempt": call.attempt}
    if is_traceparent(call.traceparent):
        fields["trace_id"] = call.traceparent.split("-")[1]
    return fields


handler = entry_point(handle, "function")
