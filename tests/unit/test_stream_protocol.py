"""The frames on a stream WebSocket."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iii_runtime.core.payload import PayloadError
from iii_runtime.core.stream_protocol import (
    MAX_FRAME_BYTES,
    Change,
    FrameError,
    Join,
    Leave,
    Sent,
    StreamEvent,
    Subscription,
    Sync,
    Unauthorized,
    parse_frame,
    render_error,
    render_frame,
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


@pytest.mark.parametrize(
    ("event", "item_id", "rendered"),
    [
        (Sync([{"a": 1}]), None, {"type": "sync", "data": [{"a": 1}]}),
        (Sync(None), "i1", {"type": "sync", "data": None}),
        (Change("create", {"a": 1}), "i1", {"type": "create", "data": {"a": 1}}),
        (Change("update", 2), "i1", {"type": "update", "data": 2}),
        (Change("delete", "old"), "i1", {"type": "delete", "data": "old"}),
        (Sent("step_update", {"s": 1}), None, {"type": "event", "event": {"type": "step_update", "data": {"s": 1}}}),
        (Unauthorized(), None, {"type": "unauthorized"}),
    ],
)
def test_an_event_is_rendered_as_iii_does(event: StreamEvent, item_id: str | None, rendered: object) -> None:
    text = render_frame(event, stream_name="orders", group_id="g1", item_id=item_id, timestamp_ms=17)
    assert json.loads(text) == {
        "type": "stream",
        "timestamp": 17,
        "streamName": "orders",
        "groupId": "g1",
        "id": item_id,
        "event": rendered,
    }


def test_data_that_is_not_json_is_not_rendered() -> None:
    with pytest.raises(PayloadError):
        render_frame(Sync(float("nan")), stream_name="s", group_id="g", item_id=None, timestamp_ms=0)


def test_an_error_frame_names_the_subscription_where_it_is_known() -> None:
    assert json.loads(render_error(FrameError("no"))) == {"type": "error", "code": "frame_invalid", "message": "no"}
    assert json.loads(render_error(FrameError("no", "s1")))["subscriptionId"] == "s1"


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
