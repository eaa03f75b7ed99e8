"""How lists look: a table where it fits, records where it does not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iii_runtime.cli.table import layout

COLUMNS = ("receipt", "attempts", "error")
ROWS = [("74c17049-4229-409d", 1, "ValueError: no such product"), ("74c17050", 12, "KeyError: 'tea'")]


def test_a_table_that_fits_has_one_line_for_each_row_and_numbers_on_the_right() -> None:
    assert layout(COLUMNS, ROWS, width=57) == [
        "receipt             attempts  error",
        "------------------  --------  ---------------------------",
        "74c17049-4229-409d         1  ValueError: no such product",
        "74c17050                  12  KeyError: 'tea'",
    ]


def test_a_table_that_is_too_wide_becomes_records() -> None:
    assert layout(COLUMNS, ROWS, width=56) == [
        "receipt   74c17049-4229-409d",
        "attempts  1",
        "error     ValueError: no such product",
        "",
        "receipt   74c17050",
        "attempts  12",
        "error     KeyError: 'tea'",
    ]


def test_text_that_is_too_wide_stands_below_its_row() -> None:
    assert layout(COLUMNS, ROWS, width=28, has_text=True) == [
        "receipt             attempts",
        "------------------  --------",
        "74c17049-4229-409d         1",
        "    ValueError: no such",
        "    product",
        "74c17050                  12",
        "    KeyError: 'tea'",
    ]


def test_in_records_only_text_is_folded() -> None:
    assert layout(COLUMNS, ROWS[:1], width=20, has_text=True) == [
        "receipt   74c17049-4229-409d",
        "attempts  1",
        "error     ValueError:",
        "          no such",
        "          product",
    ]


def test_cells_with_several_lines_keep_them_and_empty_ones_have_no_line_in_a_record() -> None:
    rows = [("shop::echo", "http GET /\ncron 0 * * * * *", ""), ("shop::fail", "", "x")]
    assert layout(("function", "triggers", "note"), rows, width=None)[2:] == [
        "shop::echo  http GET /",
        "            cron 0 * * * * *",
        "shop::fail                    x",
    ]
    assert layout(("function", "triggers", "note"), rows, width=20) == [
        "function  shop::echo",
        "triggers  http GET /",
        "          cron 0 * * * * *",
        "",
        "function  shop::fail",
        "note      x",
    ]


def test_wide_characters_count_twice() -> None:
    assert layout(("name", "n"), [("日本語", 1), ("ab", 2)], width=9) == [
        "name    n",
        "------  -",
        "日本語  1",
        "ab      2",
    ]


names = st.from_regex(r"[a-z0-9:-]{1,60}", fullmatch=True)


@given(
    rows=st.lists(st.tuples(names, names, st.lists(names, max_size=8).map(" ".join)), min_size=1, max_size=4),
    width=st.none() | st.integers(1, 200),
    has_text=st.booleans(),
)
def test_no_name_is_ever_folded_or_cut_and_no_line_ends_with_a_space(
    rows: list[tuple[str, str, str]], width: int | None, has_text: bool
) -> None:
    lines = layout(("receipt", "queue", "error"), rows, width=width, has_text=has_text)
    words = [word for line in lines for word in line.split()]
    for receipt, queue, error in rows:
        assert {receipt, queue, *error.split()} <= set(words)
    assert all(line == line.rstrip() for line in lines)
