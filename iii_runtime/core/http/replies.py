"""From what a function returned, or from an error, to the bytes that go out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol, TypeAlias, runtime_checkable

from iii_runtime.core.frozen import frozen
from iii_runtime.core.http.errors import HttpError, ResultInvalidError
from iii_runtime.core.http.media import parse_content_type
from iii_runtime.core.payload import Json, PayloadError, encode_json, to_json

Headers: TypeAlias = tuple[tuple[str, str], ...]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
RESPONSE_MEMBERS = frozenset({"body", "headers", "status_code", "statusCode"})
"""The members of a dict that is a response. A dict without any of them answers 200 with `{}`, as in iii."""

MAX_DETAILS_BYTES = 64 * 1024
"""Of the problems of an input as many are told as fit into this, as JSON."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection"})
_STATUSES_WITHOUT_BODY = frozenset({204, 205, 304})


@frozen(kw_only=True)
class HttpReply:
    """A finished answer. For HEAD the host leaves the body out.

    Attributes:
        status: 200 to 599.
        headers: Valid names and latin-1 values without control characters; no framing headers.
        body: The bytes.
    """

    status: int
    headers: Headers = ()
    body: bytes = b""


@runtime_checkable
class ResponseLike(Protocol):
    """`ApiResponse`, or any value with its three attributes."""

    @property
    def status_code(self) -> object:
        """The http status."""

    @property
    def body(self) -> object:
        """The body."""

    @property
    def headers(self) -> object:
        """The headers."""


def render_response(result: object) -> HttpReply:
    """Turn what a function returned into an answer, by iii's rules.

    - A dict, or a value like `ApiResponse`: `status_code` (or `statusCode`, default 200), `body` (default `{}`) and
      `headers` (a dict, or a list of `"Name: value"`). Other members are not sent, so a dict without `body` and
      `status_code` answers 200 with `{}`. None does so too.
    - Any other result (text, number, list, bytes, a pydantic model without `body` and `status_code`) is the body of a
      200. That is an addition to iii.
    - Bytes go out raw, as `application/octet-stream` unless `headers` says otherwise. Text goes out raw when `headers`
      names a content type, in its charset. Everything else is JSON.
    - 204, 205 and 304 have no body. `Content-Length`, `Transfer-Encoding` and `Connection` are the host's and dropped.

    Raises:
        ResultInvalidError: The status is not an integer from 200 to 599, a header is not valid, the body is not JSON,
            or the result cannot be read: a model that cannot be dumped, an attribute that raises. Nothing else.
    """
    try:
        return _rendered(result)
    except ResultInvalidError:
        raise
    except Exception as error:
        kind = type(result).__name__
        raise ResultInvalidError(f"the result is a {kind:.80}, which cannot be read: {error!r:.500}") from error


def _rendered(result: object) -> HttpReply:
    status, body, raw_headers = _parts(result)
    if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
        raise ResultInvalidError(f"status_code must be an integer from 200 to 599, found {status!r:.80}.")
    headers = tuple(header for header in _headers(raw_headers) if header[0].lower() not in _FRAMING)
    if status in _STATUSES_WITHOUT_BODY:
        return HttpReply(status=int(status), headers=headers)
    content_type = next((value for name, value in headers if name.lower() == "content-type"), None)
    default_type, content = _encode(body, content_type)
    if content_type is None:
        headers = (("Content-Type", default_type), *headers)
    return HttpReply(status=int(status), headers=headers, body=content)


def error_envelope(code: str, message: str, error_id: str, **details: Json) -> dict[str, Json]:
    """Return `{"error": {"code", "message", "error_id"}}`; `details` join the inner object."""
    return {"error": {"code": code, "message": message, "error_id": error_id, **details}}


def error_reply(status: int, code: str, message: str, error_id: str) -> HttpReply:
    """Answer with the envelope. For any error that has no function of its own here."""
    return _json_reply(status, error_envelope(code, message, error_id))


def http_error_reply(error: HttpError, error_id: str) -> HttpReply:
    """Answer an error of these rules with its own status and code: 400, 413, 500."""
    return error_reply(error.status, error.code, error.message, error_id)


def not_found(method: str, path: str, error_id: str) -> HttpReply:
    """404: no route has this path."""
    return error_reply(404, "NOT_FOUND", f"no route for {method} {_shown(path)}", error_id)


def method_not_allowed(method: str, path: str, allowed: Iterable[str], error_id: str) -> HttpReply:
    """405 with an `Allow` header."""
    methods = ", ".join(allowed)
    message = f"{method} is not allowed for {_shown(path)}; allowed: {methods}"
    reply = error_reply(405, "METHOD_NOT_ALLOWED", message, error_id)
    return replace(reply, headers=(*reply.headers, ("Allow", methods)))


def payload_too_large(limit_bytes: int, error_id: str) -> HttpReply:
    """413: the body is larger than `limit_bytes`."""
    return error_reply(413, "PAYLOAD_TOO_LARGE", f"the body is larger than {limit_bytes} bytes", error_id)


def condition_not_met(error_id: str) -> HttpReply:
    """422 with `"skipped": true`: the condition function returned false."""
    envelope = error_envelope("CONDITION_NOT_MET", "the condition of the trigger is not met", error_id)
    return _json_reply(422, {**envelope, "skipped": True})


def validation_failed(message: str, problems: Iterable[object], error_id: str) -> HttpReply:
    """422: the input does not fit the handler's model.

    `details` has one entry per problem, of the first ones as many as fit into `MAX_DETAILS_BYTES`. A problem that is
    not JSON stands there as text.
    """
    return _json_reply(422, error_envelope("VALIDATION_FAILED", message, error_id, details=_details(problems)))


def timed_out(timeout_ms: int, error_id: str) -> HttpReply:
    """504: the function did not answer within `timeout_ms`."""
    return error_reply(504, "TIMEOUT", f"the function did not answer within {timeout_ms} ms", error_id)


def unavailable(message: str, retry_after_seconds: int, error_id: str) -> HttpReply:
    """503 with `Retry-After`: the host is at its limit or stopping."""
    reply = error_reply(503, "UNAVAILABLE", message, error_id)
    return replace(reply, headers=(*reply.headers, ("Retry-After", str(retry_after_seconds))))


def _json_reply(status: int, value: Json) -> HttpReply:
    """Return an answer of the runtime's own. It never fails: what is no character in a text is shown as its escape."""
    text = json.dumps(value, ensure_ascii=False)
    # Only lone surrogates are found: in Python a character beyond them is one, not two.
    if _SURROGATE.search(text):
        value = json.loads(_SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text))
    body = json.dumps(value, separators=(",", ":")).encode("ascii")
    return HttpReply(status=status, headers=(("Content-Type", "application/json"),), body=body)


def _details(problems: Iterable[object]) -> list[Json]:
    details: list[Json] = []
    size = 0
    for problem in problems:
        try:
            detail = to_json(problem)
        except PayloadError:
            detail = {"msg": f"{problem!r:.500}"}
        size += len(json.dumps(detail))
        if size > MAX_DETAILS_BYTES:
            break
        details.append(detail)
    return details


def _shown(path: str) -> str:
    return path[:200].encode("ascii", "backslashreplace").decode("ascii")


def _parts(result: object) -> tuple[object, object, object]:
    if isinstance(result, ResponseLike):
        return result.status_code, result.body, result.headers
    dump = getattr(result, "model_dump", None)
    members = dump(mode="json", by_alias=True) if callable(dump) else result
    if members is None:
        return 200, {}, None
    if callable(dump) and isinstance(members, Mapping) and not members.keys() & RESPONSE_MEMBERS:
        return 200, members, None
    if not isinstance(members, Mapping):
        return 200, members, None
    status = members.get("status_code", members.get("statusCode", 200))
    return status, members.get("body", {}), members.get("headers")


def _headers(raw: object) -> Iterable[tuple[str, str]]:
    if raw is None:
        return
    if isinstance(raw, Mapping):
        for name, value in raw.items():
            for single in value if isinstance(value, list | tuple) else (value,):
                yield _header(name, single)
        return
    if not isinstance(raw, list | tuple):
        raise ResultInvalidError(f"headers must be an object or a list, found {type(raw).__name__}.")
    for line in raw:
        if not isinstance(line, str) or ":" not in line:
            raise ResultInvalidError(f'a header in a list must be text like "Name: value", found {line!r:.80}.')
        name, _, value = line.partition(":")
        yield _header(name, value)


def _header(name: object, value: object) -> tuple[str, str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ResultInvalidError(f"the header name {name!r:.80} is not valid.")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ResultInvalidError(f"the header {name} must have text as its value, found {type(value).__name__}.")
    text = str(value).strip(" \t")
    if not _VALUE.fullmatch(text):
        raise ResultInvalidError(f"the value of the header {name} has a line break or a character beyond latin-1.")
    return name, text


def _encode(body: object, content_type: str | None) -> tuple[str, bytes]:
    if isinstance(body, bytes | bytearray | memoryview):
        return "application/octet-stream", bytes(body)
    if isinstance(body, str) and content_type is not None:
        return content_type, _encode_text(body, content_type)
    try:
        return "application/json", encode_json(body, "the response body").encode("ascii")
    except PayloadError as error:
        raise ResultInvalidError(error.message) from error


def _encode_text(body: str, content_type: str) -> bytes:
    media = parse_content_type(content_type)
    if media.codec is None:
        raise ResultInvalidError(f"the charset {media.charset[:40]!a} of the response is not supported; use utf-8.")
    try:
        return body.encode(media.codec)
    except UnicodeEncodeError as error:
        raise ResultInvalidError(f"the body has a character that {media.charset} does not have.") from error
