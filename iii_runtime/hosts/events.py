"""Reads AWS events, as Lambda functions receive them, into what they stand for. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias
from urllib.parse import quote

from iii_runtime.core.api_types import Caller, IamCaller, JwtCaller
from iii_runtime.core.message import BlobLink, decode_envelope
from iii_runtime.core.payload import Json, PayloadError, decode_json, decode_stored
from iii_runtime.engine.http_entry import HttpCall
from iii_runtime.hosts.unknown_event import EventUnknownError

_KNOWN = (
    "API Gateway HTTP API (payload format 2.0), "
    'SQS (Records with eventSource "aws:sqs"), '
    'EventBridge schedules (source "aws.events" or "aws.scheduler")'
)
_LAST_YEAR = 9998
"""What is planned from a tick comes after it, and must be an instant too."""

_PARAMETER = re.compile(r"\{([^{}]+)\}")
_PATH_CHARACTERS = "/%:@!$&'()*+,;=-._~"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePayloads:
    """Messages of one SQS queue.

    Attributes:
        queue: The queue's name, the last part of its ARN without `.fifo`.
        message_ids: SQS's ids, in order; the `itemIdentifier` of a partial batch response.
        payloads: What the function receives, in the same order.
    """

    queue: str
    message_ids: tuple[str, ...]
    payloads: tuple[Json, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CronTick:
    """A schedule has fired.

    Attributes:
        event_id: Identity of the tick; a duplicate has the same.
        scheduled_at: Its nominal time, UTC.
        resources: ARNs of the rule or schedule.
    """

    event_id: str
    scheduled_at: datetime
    resources: tuple[str, ...]


Event: TypeAlias = HttpCall | QueuePayloads | CronTick


def parse_event(event: object) -> Event:
    """Recognise an event and read it.

    - API Gateway HTTP API, payload format 2.0 (and function URLs): cookies become a `cookie` header, a base64 body
      becomes bytes. The path is put together from the route and its parameters; where there is none, it is the
      `rawPath`, without the stage in front of the path of the default endpoint. What its authorizer says is the caller.
    - SQS: every body is a JSON payload, or a message as the runtime sends it, which holds one.
    - EventBridge rule or Scheduler: a tick.

    Raises:
        EventUnknownError: None of these, or a member of it cannot be read; names what was wrong and what is known.
    """
    if isinstance(event, Mapping):
        context = event.get("requestContext")
        if event.get("version") == "2.0" and isinstance(context, Mapping) and isinstance(context.get("http"), Mapping):
            return _http_call(event)
        records = event.get("Records")
        if isinstance(records, list) and records and all(_is_sqs(record) for record in records):
            return _queue_payloads(records)
        if event.get("source") in ("aws.events", "aws.scheduler") and event.get("detail-type") == "Scheduled Event":
            return _cron_tick(event)
    raise EventUnknownError(f"{_describe(event)} is no event this runtime knows. Known are: {_KNOWN}.")


def _http_call(event: Mapping[str, object]) -> HttpCall:
    context = _object(event, "requestContext")
    headers = [(name, str(value)) for name, value in _object(event, "headers").items()]
    cookies = _texts(event, "cookies")
    if cookies:
        headers = [(name, value) for name, value in headers if name.lower() != "cookie"]
        headers.append(("cookie", "; ".join(cookies)))
    return HttpCall(
        method=_text(_object(context, "http"), "method", "requestContext.http.").upper(),
        path=_routed_path(event) or _path(_text(event, "rawPath"), context),
        query=_text(event, "rawQueryString") if event.get("rawQueryString") is not None else "",
        headers=tuple(headers),
        body=_body(event),
        caller=_caller(_object(context, "authorizer")),
    )


def _routed_path(event: Mapping[str, object]) -> str | None:
    """Return the path with the parameters as the route has found them; None without a route or one of its parameters.

    API Gateway decodes `rawPath`, so that it no longer tells a `/` in a parameter from one between two segments, nor
    `%41` from an `A`. It decodes parameters once too, but each for itself.
    """
    key, values = event.get("routeKey"), _object(event, "pathParameters")
    template = key.partition(" ")[2] if isinstance(key, str) else ""
    names = _PARAMETER.findall(template)
    if not names or not all(isinstance(values.get(name), str) and values[name] for name in names):
        return None
    return _PARAMETER.sub(lambda found: _quoted(str(values[found[1]]), f"pathParameters.{found[1]}", ""), template)


def _path(raw: str, context: Mapping[str, object]) -> str:
    stage = context.get("stage")
    if ".execute-api." in str(context.get("domainName")) and f"{raw}/".startswith(f"/{stage}/"):
        raw = raw.removeprefix(f"/{stage}") or "/"
    # API Gateway hands over a path that may be decoded already.
    return _quoted(raw, "rawPath", _PATH_CHARACTERS)


def _quoted(text: str, what: str, safe: str) -> str:
    try:
        return quote(text, safe=safe)
    except UnicodeEncodeError as error:
        raise EventUnknownError(f"the event's {what} holds a lone surrogate, which is not a character.") from error


def _caller(authorizer: Mapping[str, object]) -> Caller | None:
    if authorizer.get("jwt") is not None:
        jwt = _object(authorizer, "jwt")
        claims = dict(_object(jwt, "claims"))
        return JwtCaller(claims=claims, scopes=_texts(jwt, "scopes") or _granted(claims))
    if authorizer.get("iam") is None:
        return None
    iam, where = _object(authorizer, "iam"), "requestContext.authorizer.iam."
    cognito = _object(iam, "cognitoIdentity")
    return IamCaller(
        arn=_text(iam, "userArn", where),
        account=_text(iam, "accountId", where),
        user_id=_text(iam, "userId", where),
        cognito_identity=_text(cognito, "identityId", f"{where}cognitoIdentity.") if cognito else None,
    )


def _granted(claims: Mapping[str, object]) -> tuple[str, ...]:
    """Return the scopes of a token: API Gateway names them itself only where the route demands some."""
    granted = claims.get("scope", claims.get("scp"))
    # A list of a token arrives as text, in brackets.
    return tuple(granted.strip("[]").split()) if isinstance(granted, str) else ()


def _body(event: Mapping[str, object]) -> bytes:
    if event.get("body") is None:
        return b""
    body = _text(event, "body")
    if not event.get("isBase64Encoded"):
        return body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise EventUnknownError(f"the event says its body is base64, but it is not: {error}.") from error


def _is_sqs(record: object) -> bool:
    return isinstance(record, Mapping) and record.get("eventSource") == "aws:sqs"


def _queue_payloads(records: list[Mapping[str, object]]) -> QueuePayloads:
    arns = {_text(record, "eventSourceARN", f"Records[{index}].") for index, record in enumerate(records)}
    if len(arns) != 1:
        raise EventUnknownError(f"the records come from {len(arns)} queues; an event has those of one queue.")
    return QueuePayloads(
        queue=arns.pop().rpartition(":")[2].removesuffix(".fifo"),
        message_ids=tuple(_text(record, "messageId", f"Records[{index}].") for index, record in enumerate(records)),
        payloads=tuple(_payload(record, index) for index, record in enumerate(records)),
    )


def _payload(record: Mapping[str, object], index: int) -> Json:
    where = f"Records[{index}]."
    body = _text(record, "body", where)
    try:
        payload = decode_json(body, f"{where}body")
    except PayloadError as error:
        raise EventUnknownError(error.message) from error
    try:
        sent = decode_envelope(body).payload
    except PayloadError:
        return payload  # written by hand
    if isinstance(sent, BlobLink):
        raise EventUnknownError(f"the payload of {where}body lies in the bucket of its stage, under {sent.key}.")
    return decode_stored(sent)


def _cron_tick(event: Mapping[str, object]) -> CronTick:
    raw = _text(event, "time")
    try:
        given = datetime.fromisoformat(raw)
        instant = given.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise EventUnknownError("the event's time is no RFC 3339 instant.") from error
    if given.tzinfo is None:
        raise EventUnknownError("the event's time has no time zone.")
    if instant.year > _LAST_YEAR:
        raise EventUnknownError(f"the event's time is after the year {_LAST_YEAR}.")
    return CronTick(event_id=_text(event, "id"), scheduled_at=instant, resources=_texts(event, "resources"))


def _object(members: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = members.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise EventUnknownError(f"the event's {name} must be an object, found {type(value).__name__}.")
    return value


def _text(members: Mapping[str, object], name: str, where: str = "") -> str:
    value = members.get(name)
    if not isinstance(value, str):
        found = "nothing" if value is None else type(value).__name__
        raise EventUnknownError(f"the event's {where}{name} must be a string, found {found}.")
    return value


def _texts(members: Mapping[str, object], name: str) -> tuple[str, ...]:
    value = members.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise EventUnknownError(f"the event's {name} must be a list of strings.")
    return tuple(value)


def _describe(event: object) -> str:
    if not isinstance(event, Mapping):
        return f"a value of type {type(event).__name__}"
    if event.get("version") == "1.0" and "httpMethod" in event:
        return "an API Gateway event of payload format 1.0"
    return f"an object with the members {', '.join(sorted(map(str, event)))[:200] or '(none)'}"
