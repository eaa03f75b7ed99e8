"""Requests of an HTTP API and the answers it takes from a Lambda: payload format 2.0."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from iii_runtime.core.http import HttpReply, error_reply, join_headers
from iii_runtime.core.payload import Json
from iii_runtime.engine.http_entry import HttpCall
from iii_runtime.hosts.aws_lambda.context import LambdaContext, time_for_functions
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox
from iii_runtime.hosts.events import parse_event
from iii_runtime.hosts.unknown_event import EventUnknownError
from iii_runtime.plan.limits import ANSWER_TIME, API_TIMEOUT, LAMBDA_TIMEOUT
from iii_runtime.ports.clock import Clock

_log = logging.getLogger("iii_runtime.http")

LARGEST_RESPONSE = 6 * 1024 * 1024
"""Bytes of an answer as JSON, headers and cookies included: what Lambda returns."""

_COUNTED_FROM = LARGEST_RESPONSE // 8
"""Below this a body with its headers fits, however it is written: no byte takes more than 6, a header 6 more."""

_LONGEST_MS = LAMBDA_TIMEOUT // timedelta(milliseconds=1)


def answer_http(sandbox: Sandbox, event: object, context: LambdaContext) -> Json:
    """Answer a request of the HTTP API with the function; whatever goes wrong is an answer with a typed error.

    Raises:
        EventUnknownError: The event is no request of an HTTP API, or a member of it cannot be read.
    """
    call = parse_event(event)
    if not isinstance(call, HttpCall):
        raise EventUnknownError(
            "the Lambda of a function handles http requests (payload format 2.0), messages of its queue, calls and "
            "cron ticks, and nothing else."
        )

    accepted = _accepted(event, sandbox.clock)

    async def answer() -> HttpReply:
        deadline = accepted + API_TIMEOUT - ANSWER_TIME
        invoker = sandbox.runtime.invoker
        invoker.remaining = lambda: max(min(time_for_functions(context), deadline - sandbox.clock.now()), timedelta(0))
        return await sandbox.http.handle(call)

    return http_response(sandbox.run(answer, context), call.method, context.aws_request_id)


def _accepted(event: object, clock: Clock) -> datetime:
    """Return when the HTTP API took the request: it waits from then on, also while the sandbox starts.

    That is now where the event does not say it, tells the future, or a time longer ago than any Lambda runs: a stored
    event that somebody sends again.
    """
    context = event.get("requestContext") if isinstance(event, Mapping) else None
    epoch_ms = context.get("timeEpoch") if isinstance(context, Mapping) else None
    if isinstance(epoch_ms, bool) or not isinstance(epoch_ms, int):
        return clock.now()
    age_ms = clock.now_ms() - epoch_ms
    return clock.now() - timedelta(milliseconds=age_ms if 0 < age_ms <= _LONGEST_MS else 0)


def http_response(reply: HttpReply, method: str, error_id: str) -> dict[str, Json]:
    """Return the answer to a request of an HTTP API.

    A body that is UTF-8 goes out as text, any other as base64; a large one the shorter way. Each `Set-Cookie` is a
    cookie of its own; other headers that are there more than once are joined. An answer that is larger than Lambda
    returns, all of it counted, is a 500 with the code `RESPONSE_TOO_LARGE` in its place, and a line in the log.

    Args:
        reply: The answer.
        method: Of the request; the answer to `HEAD` has no body.
        error_id: Names the answer that takes the place of one larger than Lambda returns.
    """
    size = _length(reply.headers) + (0 if method == "HEAD" else len(reply.body))
    if size < _COUNTED_FROM:
        return _response(reply, method, is_binary=not _is_text(reply.body))
    sized = [(len(json.dumps(each)), each) for each in _both_ways(reply, method)]
    size, response = min(sized, key=lambda pair: pair[0])
    return response if size <= LARGEST_RESPONSE else _response(_too_large(reply, size, error_id), method)


def _too_large(reply: HttpReply, size: int, error_id: str) -> HttpReply:
    message = (
        f"the function's response is {size:,} bytes as Lambda returns it, and Lambda returns {LARGEST_RESPONSE:,}. "
        "Store the data, in a bucket for instance, and answer with a link to it."
    )
    _log.error("response too large", extra={"iii": {"error": message, "error_id": error_id}})
    refusal = error_reply(500, "RESPONSE_TOO_LARGE", message, error_id)
    # What lets a browser read the answer stays, unless that is what is large.
    kept = tuple(header for header in reply.headers if header[0].lower().startswith(("access-control-", "vary")))
    headers = (*refusal.headers, *kept) if _length(kept) < _COUNTED_FROM else refusal.headers
    return HttpReply(status=refusal.status, headers=headers, body=refusal.body)


def _length(headers: Iterable[tuple[str, str]]) -> int:
    return sum(len(name) + len(value) for name, value in headers)


def _both_ways(reply: HttpReply, method: str) -> list[dict[str, Json]]:
    ways = [True, False] if _is_text(reply.body) else [True]
    return [_response(reply, method, is_binary=is_binary) for is_binary in ways]


def _response(reply: HttpReply, method: str, *, is_binary: bool = False) -> dict[str, Json]:
    cookies: list[Json] = [value for name, value in reply.headers if name.lower() == "set-cookie"]
    headers = join_headers(header for header in reply.headers if header[0].lower() != "set-cookie")
    body = b"" if method == "HEAD" else reply.body
    response: dict[str, Json] = {
        "statusCode": reply.status,
        "headers": dict(headers),
        "body": base64.b64encode(body).decode("ascii") if is_binary else body.decode("utf-8"),
        "isBase64Encoded": is_binary,
    }
    return {**response, "cookies": cookies} if cookies else response


def _is_text(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
