"""Commands on a data directory without a store: reading makes none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.commands import answer, done, refused, run

pytestmark = pytest.mark.usefixtures("own_folder", "shop")

READING: list[tuple[tuple[str, ...], object]] = [
    (("state", "get", "s", "k"), None),
    (("state", "list", "s"), []),
    (("state", "scopes"), {"groups": []}),
    (("stream", "list", "s"), []),
    (("stream", "list", "s", "g"), []),
    (("dlq", "list"), []),
    (("dlq", "list", "default"), []),
]


@pytest.mark.parametrize(("arguments", "expected"), READING)
def test_a_command_that_reads_says_so_and_answers_with_nothing(arguments: tuple[str, ...], expected: object) -> None:
    assert answer(*arguments) == expected
    assert run(*arguments).stderr.startswith("notice: no store in data yet\n")
    assert not Path("data").exists()


def test_what_the_code_says_is_listed() -> None:
    assert answer("functions")["functions"][0]["function_id"] == "shop::echo"
    assert [job["function_id"] for job in answer("cron", "list")] == ["shop::echo"]
    assert [(queue["name"], queue["consumers"]) for queue in answer("queues")] == [("default", ["shop::fail"])]
    assert not Path("data").exists()


def test_a_dead_letter_or_queue_that_nobody_knows_is_exit_code_1() -> None:
    assert "error: dead_letter_not_found: " in refused(1, "dlq", "show", "receipt")
    assert "error: queue_not_found: " in refused(1, "dlq", "list", "typo")
    assert not Path("data").exists()


def test_a_directory_that_holds_other_things_stays_as_it_is() -> None:
    Path("data").mkdir()
    Path("data", "note.txt").write_text("mine")
    assert "no store in data yet" in run("state", "scopes").stderr
    assert [path.name for path in Path("data").iterdir()] == ["note.txt"]


def test_a_command_that_changes_something_makes_the_store_and_the_next_one_reads_it() -> None:
    assert "notice: no store in data yet; a new one is made" in run("state", "set", "s", "k", "1").stderr
    result = run("state", "get", "s", "k")
    assert (result.stdout, result.stderr) == ("1\n", "")


def test_calling_a_function_makes_the_store() -> None:
    done("trigger", "shop::echo")
    assert Path("data", "iii.db").exists()
