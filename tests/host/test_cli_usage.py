"""Help, usage errors, and errors for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iii_runtime.cli.main import cli
from tests.host.commands import done, refused, run

pytestmark = pytest.mark.usefixtures("own_folder")


class TestUsage:
    def test_dev_says_what_to_give_when_there_is_no_folder_of_workers(self) -> None:
        assert "iii-runtime dev app.py" in refused(2, "dev")

    @pytest.mark.parametrize(
        ("arguments", "option"),
        [
            (("state", "scopes", "--data", ""), "--data"),
            (("state", "scopes", "--config", ""), "--config"),
            (("functions", "--worker", ""), "--worker"),
            (("dev", "--data", ""), "--data"),
            (("dev", ""), "TARGETS"),
        ],
    )
    def test_an_empty_path_is_a_usage_error_and_not_the_current_directory(
        self, arguments: tuple[str, ...], option: str
    ) -> None:
        told = refused(2, *arguments)
        assert "it is empty; is a shell variable not set?" in told
        assert option in told
        assert list(Path.cwd().iterdir()) == []

    @pytest.mark.usefixtures("shop")
    def test_a_worker_that_cannot_be_imported_is_exit_code_2(self) -> None:
        told = refused(2, "functions", "--worker", "nowhere.py")
        assert told.splitlines()[-1].startswith("error: worker_not_found: ")
        assert "nowhere.py" in told

    def test_the_version_is_known(self) -> None:
        assert done("--version").startswith("iii-runtime")

    def test_every_command_has_a_help(self) -> None:
        assert "dlq" in done("--help")
        for command in cli.list_commands(None):  # type: ignore[arg-type]
            assert "Usage:" in done(command, "--help")

    @pytest.mark.parametrize("group", [(), ("queues",), ("dlq",), ("state",), ("stream",), ("cron",), ("config",)])
    def test_no_summary_of_a_command_is_cut_even_in_80_columns(self, group: tuple[str, ...]) -> None:
        _, found, listing = done(*group, "--help").partition("Commands:\n")
        assert found
        assert "..." not in listing

    @pytest.mark.parametrize(
        ("given", "meant"), [("que", "'queues'"), ("st", "'state' or 'stream'"), ("tigger", "'trigger'")]
    )
    def test_an_unknown_command_is_answered_with_what_may_be_meant(self, given: str, meant: str) -> None:
        assert f"No such command '{given}'. Did you mean {meant}?" in refused(2, given)

    def test_an_unknown_command_like_no_other_is_refused(self) -> None:
        assert "No such command 'zzz'.\n" in refused(2, "zzz")


@pytest.mark.usefixtures("shop")
class TestErrorsForPrograms:
    @pytest.mark.parametrize(
        ("arguments", "exit_code", "members"),
        [
            (("trigger", "shop::none"), 1, {"code": "function_not_found", "function_id": "shop::none"}),
            (("trigger", "shop::crash"), 1, {"code": "invocation_failed", "function_id": "shop::crash"}),
            (
                ("trigger", "shop::echo", "--queue", "none"),
                1,
                {"code": "enqueue_error", "reason": "queue_not_found", "function_id": "shop::echo"},
            ),
            (("dlq", "show", "x"), 1, {"code": "dead_letter_not_found"}),
            (("functions", "--worker", "nowhere.py"), 2, {"code": "worker_not_found"}),
            (("trigger", "shop::echo", "--delay", "1"), 2, {"code": "usage"}),
            (("dlq", "list", "--no-such-option"), 2, {"code": "usage"}),
            (("no-such-command",), 2, {"code": "usage"}),
            (("dev", "--data", ""), 2, {"code": "usage"}),
        ],
    )
    def test_an_error_is_one_object_on_stderr_with_the_same_exit_code(
        self, arguments: tuple[str, ...], exit_code: int, members: dict[str, str]
    ) -> None:
        error = json.loads(refused(exit_code, *arguments, "--json").splitlines()[-1])["error"]
        message = error.pop("message")
        assert error == members
        assert message in run(*arguments).stderr

    def test_an_argument_that_only_looks_like_the_option_changes_nothing(self) -> None:
        assert "\nerror: function_not_found: " in refused(1, "trigger", "--", "--json")
