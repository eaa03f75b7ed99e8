"""The Lambda that consumes every queue no single function is bound to, and runs messages for consumers that may not.

The function of a message runs in its own Lambda; what becomes of the message is decided here, or by the consumer that
forwards it.
"""

from __future__ import annotations

from iii_runtime.core.call import Call
from iii_runtime.core.errors import InvocationError
from iii_runtime.core.payload import Json
from iii_runtime.core.remote import RemoteCall, decode_request, is_request
from iii_runtime.engine.app import App
from iii_runtime.hosts.aws_lambda.answers import answer_to, call_of
from iii_runtime.hosts.aws_lambda.bootstrap import entry_point
from iii_runtime.hosts.aws_lambda.context import LambdaContext
from iii_runtime.hosts.aws_lambda.queue_batch import consume_event
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.aws_lambda.sqs_event import is_sqs_event
from iii_runtime.hosts.unknown_event import EventUnknownError


def handle(sandbox: Sandbox, event: object, context: LambdaContext) -> Json:
    """Handle messages of a shared queue, or carry out a call that the consumer of another queue forwards.

    A forwarded call is taken for a message of a queue whose consumer may forward it, and for a function of the app;
    whoever may invoke this Lambda has written it, and nothing tells who that was. It is answered without a result.

    Raises:
        EventUnknownError: Neither of these.
        HostError: `queue_unknown`.
        PayloadError: `request_unreadable`.
    """
    if is_sqs_event(event):
        return consume_event(sandbox, event, context)
    request = decode_request(event) if is_request(event) else None
    if not isinstance(request, RemoteCall) or not request.is_forwarded:
        raise EventUnknownError("this Lambda handles SQS messages and forwarded calls, and nothing else.")
    forwarded = request

    async def forward() -> None:
        _check(sandbox.runtime.app, forwarded.call)
        await sandbox.runtime.invoker.invoke_raw(await call_of(sandbox, forwarded))

    return sandbox.run(lambda: answer_to(sandbox, forward()), context)


def _check(app: App, call: Call) -> None:
    """Refuse what no consumer of the app forwards.

    Raises:
        InvocationError: `not_forwarded`. Of a message it is a failed attempt: during a deployment its consumer may know
            of a queue before this Lambda does.
    """
    queue = app.queues.get(call.queue or "")
    consumer = None if queue is None else queue.consumer
    if call.source == "queue" and call.receipt is not None and consumer not in {None, call.function_id}:
        return
    message = (
        f"no consumer of this app forwards a call of '{call.function_id}' from queue '{call.queue}': only the one "
        "function that is bound to a queue passes on its messages, those for other functions. If a deployment has just "
        "changed that, redrive the message."
    )
    raise InvocationError("not_forwarded", message, call.function_id)


handler = entry_point(handle, "dispatcher")
