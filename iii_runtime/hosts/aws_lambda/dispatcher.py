"""The Lambda that consumes every queue no single function is bound to, and runs messages for consumers that may not.

The function of a message runs in its own Lambda; what becomes of the message is decided here.
"""

from __future__ import annotations

from iii_runtime.core.payload import Json
from iii_runtime.core.remote import RemoteCall, decode_request, is_request
from iii_runtime.hosts.aws_lambda.answers import answer_to, call_of
from iii_runtime.hosts.aws_lambda.bootstrap import entry_point
from iii_runtime.hosts.aws_lambda.context import LambdaContext
from iii_runtime.hosts.aws_lambda.queue_batch import consume_event
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.aws_lambda.sqs_event import is_sqs_event
from iii_runtime.hosts.unknown_event import EventUnknownError


def handle(sandbox: Sandbox, event: object, context: LambdaContext) -> Json:
    """Handle messages of a shared queue, or carry out a call that the consumer of another queue forwards.

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

    async def forward() -> Json:
        return await sandbox.runtime.invoker.invoke(await call_of(sandbox, forwarded))

    return sandbox.run(lambda: answer_to(sandbox, forward()), context)


handler = entry_point(handle, "dispatcher")
