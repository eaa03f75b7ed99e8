"""The log lines of a host, for people."""

from __future__ import annotations

import logging

import pytest

from iii_runtime.hosts.embedded.lines import JsonLine, ReadableLine


def record(level: int, message: str, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("iii_runtime.queue", level, "file", 1, message, None, None)
    made.iii = fields
    return made


@pytest.mark.parametrize(
    ("level", "word"),
    [
        (logging.INFO, " INFO  queue"),
        (logging.WARNING, " \x1b[33mWARN \x1b[0m queue"),
        (logging.ERROR, " \x1b[31mERROR\x1b[0m queue"),
    ],
)
def test_only_the_level_of_warnings_and_errors_is_coloured(level: int, word: str) -> None:
    line = ReadableLine(is_coloured=True).format(record(level, "attempt failed", attempt=1))
    assert word in line
    assert line.endswith(" attempt failed  attempt=1")
    assert "\x1b" not in ReadableLine().format(record(level, "attempt failed"))


def test_a_dead_letter_ends_with_the_command_that_shows_it() -> None:
    dead = record(logging.ERROR, "dead letter", message_receipt_id="r-1", error="E: no")
    line = ReadableLine(letter_command="iii-runtime dlq show").format(dead)
    assert line.endswith(' error="E: no"  show it: iii-runtime dlq show r-1')
    assert "show it" not in ReadableLine().format(dead)
    assert "show it" not in JsonLine().format(dead)
