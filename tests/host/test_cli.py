"""The commands without a host: they open the store themselves. Those that need a host are in `test_dev.py`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from iii_runtime.cli.main import cli
from iii_runtime.core.config import Config
from iii_runtime.core.trigger_request import TriggerActionEnqueue, TriggerRequest
from iii_runtime.hosts.embedded.discovery import discover_workers
from iii_runtime.hosts.embedded.host import EmbeddedHost, HostOptions
from tests.host.commands import WORKER, answer, done, imports_undone, refused, run
from tests.host.process import PATIENCE_S

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """A data directory with three dead letters on `default`, oldest first."""
    folder = tmp_path_factory.mktemp("letters")
    (folder / "shop_worker.py").write_text(WORKER)

    async def fill() -> tuple[str, ...]:
        with imports_undone(folder):
            workers = discover_workers([str(folder / "shop_worker.py")])
        host = EmbeddedHost(workers, Config(), HostOptions(data=folder / "data", http_port=0, stream_port=0))
        await host.start()
        receipts: list[str] = []
        async with asyncio.timeout(PATIENCE_S):
            for number in range(3):
                request = TriggerRequest("shop::fail", {"number": number}, TriggerActionEnqueue("default"))
                receipt: Any = await host.runtime.trigger(request)
                receipts.append(receipt["messageReceiptId"])
                show = TriggerRequest("engine::queue::dlq_message", {"message_id": receipts[-1]})
                while await host.runtime.trigger(show) is None:  # noqa: ASYNC110 - the host has no event for it
                    await asyncio.sleep(0.01)
        await host.stop()
        return tuple(receipts)

    return folder / "data", asyncio.run(fill())


@pytest.fixture
def dead(shop: Path, letters: tuple[Path, tuple[str, ...]]) -> tuple[str, ...]:
    """The project with those letters in its data directory; their receipts."""
    shutil.copytree(letters[0], shop / "data")
    return letters[1]


@pytest.mark.usefixtures("shop")
class TestTrigger:
    def test_it_prints_the_result_as_readable_json(self) -> None:
        expected = '{\n  "payload": [\n    "ü"\n  ],\n  "metadata": null\n}\n'
        assert done("trigger", "shop::echo", "--payload", '["ü"]') == expected

    def test_json_is_one_line_and_what_functions_log_and_print_goes_to_stderr(self) -> None:
        result = run("trigger", "shop::echo", "--json")
        assert result.stdout == '{"payload":null,"metadata":null}\n'
        assert "echoing" in result.stderr
        assert "printed by the function" in result.stderr

    def test_the_payload_can_come_from_stdin_or_a_file(self) -> None:
        Path("payload.json").write_text('{"from": "file"}')
        assert answer("trigger", "shop::echo", "--payload", "-", stdin='"stdin"')["payload"] == "stdin"
        assert answer("trigger", "shop::echo", "--payload", "@payload.json")["payload"] == {"from": "file"}

    def test_metadata_is_handed_over(self) -> None:
        assert answer("trigger", "shop::echo", "--metadata", '{"who": "me"}')["metadata"] == {"who": "me"}

    def test_enqueue_prints_the_receipt_and_says_that_the_message_waits(self) -> None:
        first = run("trigger", "shop::fail", "--queue", "default", "--dedupe-id", "a", "--json")
        second = run("trigger", "shop::fail", "--queue", "default", "--dedupe-id", "a", "--json")
        assert first.stdout == second.stdout
        assert list(json.loads(first.stdout)) == ["messageReceiptId"]
        assert "no host is running" in first.stderr
        assert answer("queues")[0]["visible"] == 1

    def test_a_delayed_message_is_counted_as_delayed(self) -> None:
        done("trigger", "shop::fail", "--queue", "default", "--delay", "900")
        assert answer("queues")[0]["delayed"] == 1

    def test_a_failed_call_is_exit_code_1_with_the_stack_of_the_handler(self) -> None:
        told = refused(1, "trigger", "shop::crash")
        assert "error: invocation_failed: 'missing'\n  function: shop::crash\n  Traceback" in told
        assert 'raise KeyError("missing")' in told

    def test_an_unknown_function_or_queue_says_where_to_look(self) -> None:
        assert "`iii-runtime functions`" in refused(1, "trigger", "shop::ech")
        told = refused(1, "trigger", "shop::echo", "--queue", "none")
        assert told.startswith("error: enqueue_error: ")
        assert "queue_not_found" in told
        assert "`iii-runtime queues`" in told

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--payload", "{"),
            ("--payload", "@missing.json"),
            ("--payload", "1", "--event", "x.json"),
            ("--delay", "1"),
            ("--void", "--queue", "default"),
            ("--metadata", "[]"),
            ("--event", "missing.json"),
        ],
    )
    def test_what_cannot_be_meant_is_exit_code_2(self, arguments: tuple[str, ...]) -> None:
        assert "rror: " in refused(2, "trigger", "shop::echo", *arguments)


@pytest.mark.usefixtures("shop")
class TestEvents:
    def event(self, value: object) -> str:
        Path("event.json").write_text(json.dumps(value))
        return "event.json"

    def http(self, path: str) -> str:
        return self.event(
            {
                "version": "2.0",
                "rawPath": path,
                "rawQueryString": "a=1&a=2",
                "headers": {"content-type": "application/json"},
                "requestContext": {"http": {"method": "POST", "path": path}},
                "body": '{"x": 1}',
                "isBase64Encoded": False,
            }
        )

    def test_an_http_event_becomes_the_request_of_the_route(self) -> None:
        request = answer("trigger", "shop::echo", "--event", self.http("/echo/7"))["payload"]
        assert request == {
            "path": "/echo/:id",
            "method": "POST",
            "path_params": {"id": "7"},
            "query_params": {"a": "2"},
            "headers": {"content-type": "application/json"},
            "body": {"x": 1},
            "trigger": {"type": "http", "path": "/echo/:id", "method": "POST"},
        }

    def test_an_http_event_that_fits_no_route_of_the_function_is_refused(self) -> None:
        told = refused(1, "trigger", "shop::echo", "--event", self.http("/other"))
        assert "POST /echo/:id" in told

    def test_each_sqs_record_is_a_call(self) -> None:
        record = {"eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:eu-west-1:1:default"}
        records = [{**record, "messageId": body, "body": body} for body in ("1", "[2]")]
        printed = done("trigger", "shop::echo", "--json", "--event", self.event({"Records": records}))
        assert [json.loads(line)["payload"] for line in printed.splitlines()] == [1, [2]]

    def test_a_schedule_becomes_the_tick_of_the_functions_job(self) -> None:
        event = {"source": "aws.events", "detail-type": "Scheduled Event", "id": "e", "time": "2026-03-01T12:00:00Z"}
        tick = answer("trigger", "shop::echo", "--event", self.event({**event, "resources": []}))["payload"]
        assert tick["trigger"] == "cron"
        assert tick["job_id"] == "shop::echo|0 0 12 * * *|Europe/Berlin"
        assert tick["scheduled_time"] == "2026-03-01T12:00:00Z"

    def test_an_unknown_event_is_exit_code_2(self) -> None:
        assert "error: event_unknown: " in refused(2, "trigger", "shop::echo", "--event", self.event({}))


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


class TestState:
    def test_a_value_goes_through_its_life(self) -> None:
        assert answer("state", "set", "orders", "1", '{"n": 1}') == {"old_value": None, "new_value": {"n": 1}}
        assert answer("state", "get", "orders", "1") == {"n": 1}
        assert answer("state", "list", "orders") == [{"n": 1}]
        assert answer("state", "scopes") == {"groups": ["orders"]}
        assert answer("state", "delete", "orders", "1") == {"n": 1}
        assert answer("state", "get", "orders", "1") is None

    def test_the_data_directory_is_taken_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("III_DATA", "elsewhere")
        assert "no store in elsewhere yet" in run("state", "set", "s", "k", "1").stderr
        assert Path("elsewhere", "iii.db").exists()
        assert not Path("data").exists()

    def test_a_directory_that_cannot_be_used_is_exit_code_2(self) -> None:
        Path("file").write_text("")
        assert "error: store_unavailable: " in refused(2, "state", "scopes", "--data", "file/data")

    def test_broken_configuration_is_one_block_and_exit_code_2(self) -> None:
        Path("iii-config.yaml").write_text("workers: 1\nother: 2\n")
        told = refused(2, "state", "scopes")
        assert "error: config_invalid: iii-config.yaml:1" in told
        assert "Traceback" not in told


class TestStream:
    def test_items_and_groups_are_listed(self) -> None:
        item = '{"stream_name": "s", "group_id": "g", "item_id": "i", "data": {"x": 1}}'
        done("trigger", "stream::set", "--payload", item)
        assert answer("stream", "list", "s", "g") == [{"x": 1}]
        assert answer("stream", "list", "s") == ["g"]

    def test_watching_needs_a_host(self) -> None:
        assert "`iii-runtime dev`" in refused(2, "stream", "watch", "s", "g")


class TestDeadLetters:
    def test_they_are_listed_oldest_first_a_page_at_a_time(self, dead: tuple[str, ...]) -> None:
        assert [letter["id"] for letter in answer("dlq", "list")] == list(dead)
        assert [letter["id"] for letter in answer("dlq", "list", "default", "--limit", "1", "--offset", "1")] == [
            dead[1]
        ]
        printed = done("dlq", "list")
        assert all(receipt in printed for receipt in dead)
        assert "NonRetryableError: no stock for {'number': 0}" in printed

    def test_one_is_shown_with_its_attempts_their_stacks_and_the_payload(self, dead: tuple[str, ...]) -> None:
        printed = done("dlq", "show", dead[0])
        for text in (dead[0], "shop::fail", "attempt 1: ", "raise NonRetryableError", '"number": 0', "never redriven"):
            assert text in printed
        assert answer("dlq", "show", dead[0])["payload"] == {"number": 0}

    def test_one_or_all_are_redriven(self, dead: tuple[str, ...]) -> None:
        assert answer("dlq", "redrive", "default", dead[1])["redriven"] == 1
        assert done("dlq", "redrive", "default", "--all") == "2 redriven\n"
        assert answer("dlq", "list") == []
        assert answer("queues")[0]["visible"] == 3

    def test_one_is_discarded_without_asking(self, dead: tuple[str, ...]) -> None:
        assert done("dlq", "discard", "default", dead[0]) == "1 discarded\n"
        assert [letter["id"] for letter in answer("dlq", "list")] == list(dead[1:])

    def test_all_are_discarded_only_after_a_yes(self, dead: tuple[str, ...]) -> None:
        assert "--yes" in refused(2, "dlq", "discard", "default", "--all")
        assert len(answer("dlq", "list")) == len(dead)
        assert answer("dlq", "discard", "default", "--all", "--yes")["discarded"] == 3

    @pytest.mark.usefixtures("dead")
    def test_a_receipt_that_is_no_dead_letter_is_exit_code_1(self) -> None:
        for command in (("show",), ("redrive", "default"), ("discard", "default")):
            assert "error: dead_letter_not_found: " in refused(1, "dlq", *command, "nothing")

    @pytest.mark.usefixtures("shop")
    def test_one_or_all_has_to_be_said(self) -> None:
        assert "--all" in refused(2, "dlq", "redrive", "default")
        assert "--all" in refused(2, "dlq", "redrive", "default", "receipt", "--all")


@pytest.mark.usefixtures("shop")
class TestConfigCheck:
    def test_a_sound_app_is_exit_code_0(self) -> None:
        assert done("config", "check").endswith("functions: no errors\n")
        assert answer("config", "check") == {"ok": True, "config": None, "workers": ["functions"], "found": []}

    def test_everything_that_is_wrong_is_said_at_once(self) -> None:
        Path("iii.yaml").write_text("workers:\n  - name: iii-http\n    config: { port: x, hots: 1 }\n")
        Path("functions", "broken.py").write_text("import nothing_like_this\n")
        result = run("config", "check", "iii.yaml")
        assert result.exit_code == 1
        assert result.stdout.count("error: iii.yaml:3") == 2
        assert "broken.py:1" in result.stdout
        assert result.stdout.endswith("3 errors\n")

    def test_findings_of_config_and_workers_together_are_errors_too(self) -> None:
        Path("functions", "shop_worker.py").write_text(WORKER.replace('Queue("default")', 'Queue("defualt")'))
        result = run("config", "check", "--json")
        assert result.exit_code == 1
        (found,) = json.loads(result.stdout)["found"]
        assert found["level"] == "error"
        assert "did you mean 'default'?" in found["message"]


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


@pytest.mark.process
class TestProcess:
    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "iii_runtime.cli", *arguments]

    @pytest.mark.parametrize(
        ("missing", "arguments"),
        [("click", ["--version"]), ("rich", ["state", "scopes"]), ("aiohttp", ["dev", "--no-reload", "."])],
    )
    def test_without_the_extra_the_command_line_says_what_to_install(self, missing: str, arguments: list[str]) -> None:
        code = f"import sys; sys.modules[{missing!r}] = None; from iii_runtime.cli.entry import main; sys.exit(main())"
        command = [sys.executable, "-c", code, *arguments]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        told = "iii-runtime: the command line needs the extra: pip install 'iii-runtime[embedded]'\n"
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr.endswith(told)
        assert "Traceback" not in result.stderr

    def test_importing_the_entry_point_loads_no_library_of_a_command(self) -> None:
        code = (
            "import sys, iii_runtime.cli.main as m; m.cli.list_commands(None); "
            "print(*({'aiohttp', 'rich', 'watchfiles', 'pydantic', 'yaml', 'sqlite3', 'asyncio'} & set(sys.modules)))"
        )
        loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
        assert set(loaded) == set()

    def test_a_reader_that_stops_early_causes_no_traceback(self) -> None:
        assert run("state", "set", "s", "k", json.dumps(["x" * 1000] * 1000)).exit_code == 0
        process = subprocess.Popen(
            self.command("state", "get", "s", "k"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        with process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == ""
        assert process.returncode == 141

    @pytest.mark.parametrize(
        "arguments", [["--help"], ["functions"], ["queues", "--json"], ["dlq", "show", "RECEIPT"], ["config", "check"]]
    )
    @pytest.mark.parametrize("unbuffered", ["", "1"])
    def test_a_reader_that_never_reads_is_exit_code_141(
        self, arguments: list[str], unbuffered: str, dead: tuple[str, ...]
    ) -> None:
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "wb") as unread:
            result = self.run_into(unread, unbuffered, [each.replace("RECEIPT", dead[0]) for each in arguments])
        assert (result.returncode, result.stderr) == (141, "")

    def test_a_reader_of_an_error_that_never_reads_is_exit_code_141(self) -> None:
        read_end, write_end = os.pipe()
        os.close(read_end)
        with os.fdopen(write_end, "wb") as unread:
            result = subprocess.run(self.command("dlq", "show", "x"), check=False, stdout=unread, stderr=unread)
        assert result.returncode == 141

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
    @pytest.mark.parametrize("arguments", [["--help"], ["functions"], ["functions", "--json"]])
    @pytest.mark.parametrize("unbuffered", ["", "1"])
    @pytest.mark.usefixtures("dead")
    def test_a_stdout_that_is_full_is_one_error_and_exit_code_1(self, arguments: list[str], unbuffered: str) -> None:
        with Path("/dev/full").open("wb") as full:
            result = self.run_into(full, unbuffered, arguments)
        (line,) = result.stderr.splitlines()
        told = json.loads(line)["error"]["code"] if "--json" in arguments else line.split(": ")[1]
        assert (result.returncode, told) == (1, "output_lost")

    def test_a_closed_stdout_is_no_error(self) -> None:
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *self.command("state", "set", "s", "k", "1")]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        assert result.returncode == 0
        assert "Traceback" not in result.stderr

    def run_into(self, stdout: BinaryIO, unbuffered: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        return subprocess.run(
            self.command(*arguments), check=False, stdout=stdout, stderr=subprocess.PIPE, text=True, env=env
        )

    def test_in_a_narrow_terminal_every_receipt_can_be_copied(self, dead: tuple[str, ...]) -> None:
        master, slave = os.openpty()
        env = {**os.environ, "COLUMNS": "60"}
        subprocess.run(self.command("dlq", "list"), check=True, stdout=slave, stderr=subprocess.DEVNULL, env=env)
        os.close(slave)
        lines = os.read(master, 100_000).decode().splitlines()
        os.close(master)
        assert [line.split()[-1] for line in lines if line.startswith("receipt")] == list(dead)
        assert all(len(line) <= 60 and line == line.rstrip() for line in lines)

    def test_output_that_the_encoding_lacks_is_escaped(self) -> None:
        done("state", "set", "größe", "k", '"ü"')
        env = {**os.environ, "PYTHONIOENCODING": "ascii"}
        for arguments, expected in (
            (("state", "get", "größe", "k"), '"\\u00fc"\n'),
            (("state", "scopes"), "gr\\xf6\\xdfe"),
        ):
            result = subprocess.run(self.command(*arguments), check=True, capture_output=True, text=True, env=env)
            assert expected in result.stdout
            assert result.stderr == ""
