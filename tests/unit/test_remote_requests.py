"""What hosts say to each other, as JSON: what goes in comes out, and nothing else is taken for it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iii_runtime.core.call import Call
from iii_runtime.core.errors import InvocationError, RemoteHandlerError, StoreError
from iii_runtime.core.message import BlobLink
from iii_runtime.core.payload import PayloadError, PayloadTooLargeError
from iii_runtime.core.remote import (
    Answer,
    RemoteCall,
    RemoteRequest,
    RemoteTick,
    RemoteTrigger,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    is_request,
)
from iii_runtime.core.remote_error import describe_error, error_of
from iii_runtime.engine.cron import CronBusyError

LINK = BlobLink(key="k", size=3, sha256="h")
CALL = Call(function_id="a::b", payload=[1, None, "é"], timeout=timedelta(milliseconds=1500), metadata={"m": 1})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    "request_",
    [
        RemoteCall(call=CALL),
        RemoteCall(call=CALL, is_forwarded=True),
        RemoteCall(call=Call(function_id="a::b"), payload=LINK),
        RemoteTick(job_id="j", time=datetime(2026, 1, 1, 12, 30, 0, 5, tzinfo=UTC)),
        RemoteTick(job_id="j", time=datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2)))),
        RemoteTrigger(request={"function_id": "a::b", "payload": {"n": 1}}),
    ],
    ids=lambda request: type(request).__name__,
)
def test_a_request_comes_out_as_it_went_in(request_: RemoteRequest) -> None:
    event = json.loads(json.dumps(encode_request(request_)))
    assert is_request(event)
    assert decode_request(event) == request_


@pytest.mark.parametrize(
    "answer", [Answer(result={"a": [1]}), Answer(result=None), Answer(blob=LINK), Answer(error={"code": "x"})]
)
def test_an_answer_comes_out_as_it_went_in(answer: Answer) -> None:
    assert decode_answer(json.loads(json.dumps(encode_answer(answer)))) == answer


@pytest.mark.parametrize("event", [{"Records": []}, {"iii": None}, {"iii": "x"}, {}, None, [], "iii"])
def test_an_event_of_aws_is_no_request(event: Any) -> None:
    assert not is_request(event)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"v": 2, "kind": "call", "call": {}},
        {"v": 1},
        {"v": 1, "kind": "other"},
        {"v": 1, "kind": 7},
        {"v": 1, "kind": "call"},
        {"v": 1, "kind": "call", "call": []},
        {"v": 1, "kind": "call", "call": {"fn": "a"}},
        {"v": 1, "kind": "call", "call": {"fn": "a", "src": "direct", "att": 1, "hops": 0, "depth": 0, "pl": {}}},
        {"v": 1, "kind": "cron", "job": "j", "time": "noon"},
        {"v": 1, "kind": "cron", "job": "j", "time": "2026-01-01T00:00:00"},
        {"v": 1, "kind": "cron", "job": "j", "time": "0001-01-01T00:00:00+14:00"},
        {"v": 1, "kind": "trigger", "request": 7},
        {"v": "secret", "kind": "trigger"},
        {"v": 1, "kind": "secret"},
        {"v": 1, "kind": "cron", "job": "j", "time": "secret"},
        {"v": 1, "kind": "call", "call": {"fn": "a", "src": "secret", "p": 1, "att": 1, "hops": 0, "depth": 0}},
        {
            "v": 1,
            "kind": "call",
            "call": {"fn": "a", "src": "direct", "p": 1, "att": 1, "hops": 0, "depth": 0, "ms": 10**30},
        },
    ],
)
def test_a_request_of_another_form_is_refused_and_not_quoted(body: Any) -> None:
    with pytest.raises(PayloadError) as caught:
        decode_request({"iii": body})
    assert caught.value.code in {"request_unreadable", "call_unreadable"}
    assert "secret" not in caught.value.message


@given(JSON)
def test_no_request_breaks_its_reader(body: Any) -> None:
    try:
        decode_request({"iii": body})
    except PayloadError:
        return


@given(JSON)
def test_no_answer_breaks_its_reader(body: Any) -> None:
    try:
        decode_answer(body)
    except PayloadError:
        return


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreError("no room", code="store_full"), "store_full"),
        (PayloadTooLargeError("too large"), "payload_too_large"),
        (CronBusyError("it is running"), "cron_busy"),
        (ValueError("a defect"), "invocation_failed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_of_the_runtime_keeps_its_code_and_any_other_has_that_of_a_failure(
    error: Exception, code: str
) -> None:
    """Also where nobody has made an error of a call out of it."""
    told = error_of(json.loads(json.dumps(describe_error(error))))
    assert isinstance(told, InvocationError)
    assert (told.code, told.message) == (code, str(error))
    assert isinstance(told.__cause__, RemoteHandlerError)
    assert told.__cause__.type_name == type(error).__name__


MEMBERS = [
    "code",
    "message",
    "function_id",
    "stacktrace",
    "invocation_id",
    "reason",
    "type",
    "text",
    "final",
    "details",
]


@given(st.dictionaries(st.sampled_from(MEMBERS), JSON))
def test_no_error_breaks_its_reader(fields: dict[str, Any]) -> None:
    assert error_of(fields).message
