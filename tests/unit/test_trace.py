"""W3C trace context: continued if it is valid, begun anew if it is not."""

from __future__ import annotations

import pytest

from iii_runtime import Invocation
from iii_runtime.core.trace import child_traceparent, is_traceparent, usable_baggage

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
NEW_ID = "11111111-2222-4333-8444-555555555555"


def test_a_child_stays_in_the_trace_with_a_span_of_its_own() -> None:
    assert child_traceparent(PARENT, NEW_ID) == f"00-{TRACE}-8444555555555555-01"


def test_a_child_keeps_the_flags() -> None:
    assert child_traceparent(f"00-{TRACE}-{SPAN}-00", NEW_ID).endswith("-00")


@pytest.mark.parametrize(
    "parent",
    [
        None,
        "",
        "garbage",
        PARENT.upper(),
        PARENT + "\n",
        " " + PARENT,
        PARENT + "-extra",
        f"01-{TRACE}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
    ],
)
def test_a_malformed_parent_is_ignored(parent: str | None) -> None:
    assert not is_traceparent(parent)
    child = child_traceparent(parent, NEW_ID)
    assert child == "00-11111111222243338444555555555555-8444555555555555-01"
    assert is_traceparent(child)


def test_an_invocation_knows_its_trace_id() -> None:
    assert Invocation(id="i", function_id="f", traceparent=PARENT).trace_id == TRACE
    assert Invocation(id="i", function_id="f").trace_id is None


@pytest.mark.parametrize("baggage", ["tenant=1", "a=1,b=2;p", "x" * 8192])
def test_baggage_travels_as_it_is(baggage: str) -> None:
    assert usable_baggage(baggage) == baggage


@pytest.mark.parametrize("baggage", [None, "", "x" * 8193, "a=ü", "a=1\r\nb", "\ud800"])
def test_baggage_that_no_header_could_carry_is_dropped(baggage: str | None) -> None:
    assert usable_baggage(baggage) is None
