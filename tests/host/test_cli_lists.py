"""What `functions`, `queues` and `cron` show, and how lists look, without a host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.host.commands import answer, done, refused, run

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.usefixtures("shop")
class TestListings:
    def test_functions_are_listed_with_what_starts_them(self) -> None:
        printed = done("functions")
        for text in ("shop::echo", "http POST /echo/:id", "cron 0 0 12 * * * (Europe/Berlin)", "30 s"):
            assert text in printed
        assert f"functions{os.sep}shop_worker.py:" in printed
        assert answer("functions")["functions"][0]["function_id"] == "shop::echo"

    def test_queues_are_listed_with_settings_and_counts(self) -> None:
        header, line = (done("queues").splitlines()[index] for index in (0, 2))
        assert " ".join(header.split()).startswith("queue type concurrency attempts backoff consumers visible delayed")
        assert " ".join(line.split()) == "default standard 10 3 1000 ms shop::fail 0 0 0 0"

    def test_a_purge_asks_and_without_a_terminal_refuses(self) -> None:
        done("trigger", "shop::fail", "--queue", "default")
        assert "--yes" in refused(2, "queues", "purge", "default")
        assert answer("queues", "purge", "default", "--yes") == {"queue": "default", "purged": 1}

    def test_cron_jobs_are_listed_with_their_next_tick(self) -> None:
        (job,) = answer("cron", "list")
        assert (job["function_id"], job["expression"]) == ("shop::echo", "0 0 12 * * *")
        assert job["next"] is not None
        assert "Europe/Berlin" in done("cron", "list")

    def test_a_cron_job_can_be_run(self) -> None:
        assert answer("cron", "run", "shop::echo")["function_id"] == "shop::echo"
        assert "error: cron_job_not_found: " in refused(1, "cron", "run", "shop::fail")

    def test_without_a_terminal_a_list_is_as_wide_as_it_needs_to_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "20")
        assert done("functions").startswith("function ")
        assert len(done("queues").splitlines()) == 3

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            (("functions", "--worker", "empty.py"), "There are no functions."),
            (("cron", "list", "--worker", "empty.py"), "There are no cron jobs."),
            (("dlq", "list"), "There are no dead letters."),
            (("dlq", "list", "default", "--offset", "5"), "no dead letters on queue 'default' after the first 5."),
            (("state", "scopes"), "No scope holds a value."),
            (("stream", "list", "s"), "Stream 's' has no items."),
        ],
    )
    def test_an_empty_list_says_so(self, arguments: tuple[str, ...], sentence: str) -> None:
        Path("empty.py").write_text("from iii_runtime import register_worker\nworker = register_worker()\n")
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (0, "")
        assert sentence in result.stderr
        assert answer(*arguments) in ([], {"functions": []}, {"groups": []})

    @pytest.mark.parametrize(
        "arguments",
        [
            ("queues", "purge", "typo", "--yes"),
            ("dlq", "list", "typo"),
            ("dlq", "redrive", "typo", "--all"),
            ("dlq", "discard", "typo", "--all", "--yes"),
            ("dlq", "discard", "typo", "receipt"),
        ],
    )
    def test_a_queue_that_nobody_knows_is_exit_code_1(self, arguments: tuple[str, ...]) -> None:
        told = refused(1, *arguments)
        assert "error: queue_not_found: Queue 'typo' not found" in told
        assert "`iii-runtime queues`" in told

    def test_control_characters_do_not_reach_the_terminal(self) -> None:
        done("state", "set", "a\x1b[31mb", "key", "1")
        assert "a\\x1b[31mb" in done("state", "scopes")
