"""The frames on a stream WebSocket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iii_runtime.core.payload import MAX_DEPTH, Json
from iii_runtime.core.stream_protocol import (
    MAX_FRAME_BYTES,
    FrameError,
    Join,
    Leave,
    Subscription,
    parse_frame,
    render_error,
    render_sync,
)

DATA = {"subscriptionId": "s1", "streamName": "orders", "groupId": "g1"}
GROUP = Subscription(subscription_id="s1", stream_name="orders", group_id="g1")
ITEM = Subscription(subscription_id="s1", stream_name="orders", group_id="g1", item_id="i1")


def frame(kind: object = "join", **changes: Any) -> str:
    return json.dumps({"type": kind, "data": {**DATA, **changes}})


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (frame(), Join(GROUP)),
        (frame("leave"), Leave(GROUP)),
        (frame(id="i1"), Join(ITEM)),
        (frame(id=None), Join(GROUP)),
        (frame(extra=1).encode(), Join(GROUP)),
        (
            frame(subscriptionId="s" * 256),
            Join(Subscription(subscription_id="s" * 256, stream_name="orders", group_id="g1")),
        ),
    ],
)
def test_a_join_or_leave_is_read_from_text_and_binary(raw: str | bytes, expected: Join | Leave) -> None:
    assert parse_frame(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        "",
        "{",
        "[]",
        "null",
        b"\xff\xfe",
        '{"type":"join","data":{"subscriptionId":NaN}}',
        "[" * 30_000,
        json.dumps({"type": "subscribe", "data": DATA}),
        json.dumps({"type": ["join"], "data": DATA}),
        json.dumps({"data": DATA}),
        json.dumps({"type": "join"}),
        json.dumps({"type": "join", "data": [DATA]}),
    ],
)
def test_what_is_no_join_or_leave_is_a_frame_error(raw: str | bytes) -> None:
    with pytest.raises(FrameError) as caught:
        parse_frame(raw)
    assert (caught.value.code, caught.value.subscription_id) == ("frame_invalid", None)


@pytest.mark.parametrize("member", ["subscriptionId", "streamName", "groupId", "id"])
@pytest.mark.parametrize("value", ["", "x" * 257, "a\0b", 7, ["x"], {}])
def test_a_bad_id_is_a_frame_error_that_names_it(member: str, value: object) -> None:
    with pytest.raises(FrameError, match=rf"data\.{member}") as caught:
        parse_frame(frame(**{member: value}))
    assert caught.value.subscription_id == (None if member == "subscriptionId" else "s1")


@pytest.mark.parametrize("member", ["subscriptionId", "streamName", "groupId"])
def test_a_missing_id_is_a_frame_error(member: str) -> None:
    data = {name: value for name, value in DATA.items() if name != member}
    with pytest.raises(FrameError, match=rf"data\.{member}"):
        parse_frame(json.dumps({"type": "leave", "data": data}))


def test_the_size_limit_counts_bytes() -> None:
    padding = MAX_FRAME_BYTES - len(frame(pad=""))
    assert parse_frame(frame(pad="x" * padding)) == Join(GROUP)
    with pytest.raises(FrameError, match="65537 bytes"):
        parse_frame(frame(pad="x" * (padding + 1)))
    wide = json.dumps({"type": "join", "data": {**DATA, "pad": "é" * (MAX_FRAME_BYTES // 2)}}, ensure_ascii=False)
    with pytest.raises(FrameError, match="limit"):
        parse_frame(wide)


@pytest.mark.parametrize(("subscription", "data"), [(GROUP, [{"a": 1}]), (GROUP, []), (ITEM, {"a": 1}), (ITEM, None)])
def test_a_join_is_answered_with_what_is_stored(subscription: Subscription, data: Json) -> None:
    assert json.loads(render_sync(data, subscription=subscription, timestamp_ms=17)) == {
        "type": "stream",
        "timestamp": 17,
        "streamName": "orders",
        "groupId": "g1",
        "id": subscription.item_id,
        "event": {"type": "sync", "data": data},
    }


def test_whatever_can_be_stored_can_be_sent() -> None:
    deepest: Json = 1
    for _ in range(MAX_DEPTH):
        deepest = [deepest]
    assert json.loads(render_sync([deepest], subscription=GROUP, timestamp_ms=0))["event"]["data"] == [deepest]


def test_an_error_frame_names_the_subscription_where_it_is_known() -> None:
    assert json.loads(render_error(FrameError("no"))) == {"type": "error", "code": "frame_invalid", "message": "no"}
    assert json.loads(render_error(FrameError("no", "s1")))["subscriptionId"] == "s1"


def test_an_error_frame_says_why_a_frame_that_could_be_read_is_refused() -> None:
    refused = json.loads(render_error(FrameError("busy", "s1", code="group_too_busy")))
    assert refused == {"type": "error", "code": "group_too_busy", "message": "busy", "subscriptionId": "s1"}


@pytest.mark.parametrize(
    ("place", "group_sees_it", "item_sees_it"),
    [
        (("orders", "g1", "i1"), True, True),
        (("orders", "g1", "i2"), True, False),
        (("orders", "g1", None), True, False),
        (("orders", "g2", "i1"), False, False),
        (("other", "g1", "i1"), False, False),
    ],
)
def test_a_subscription_matches_its_group_or_its_item(
    place: tuple[str, str, str | None], *, group_sees_it: bool, item_sees_it: bool
) -> None:
    assert (GROUP.matches(*place), ITEM.matches(*place)) == (group_sees_it, item_sees_it)
