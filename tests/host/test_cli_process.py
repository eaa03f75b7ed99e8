"""Commands as processes: what is installed, and who reads what they print."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.host.commands import done, run

pytestmark = pytest.mark.usefixtures("own_folder")


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
