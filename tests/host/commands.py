"""Runs commands in this process, and a worker for them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from iii_runtime.cli.main import cli

WORKER = '''
from iii_runtime import Cron, Http, Logger, NonRetryableError, Queue, register_worker

worker = register_worker(worker_name="shop")

@worker.function("shop::echo", triggers=[Http("POST", "/echo/:id"), Cron("0 0 12 * * *", timezone="Europe/Berlin")])
def echo(payload, metadata=None):
    """Return what it gets."""
    Logger().info("echoing")
    print("printed by the function")
    return {"payload": payload, "metadata": metadata}

@worker.function("shop::fail", triggers=[Queue("default")])
def fail(payload):
    raise NonRetryableError(f"no stock for {payload}")

@worker.function("shop::crash")
def crash(payload):
    raise KeyError("missing")
'''


def run(*arguments: str, stdin: str | None = None) -> Result:
    with imports_undone(Path.cwd()):
        return CliRunner().invoke(cli, arguments, input=stdin, catch_exceptions=False)


def done(*arguments: str, stdin: str | None = None) -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def answer(*arguments: str, stdin: str | None = None) -> Any:
    return json.loads(done(*arguments, "--json", stdin=stdin))


def refused(code: int, *arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    return result.stderr


@contextmanager
def imports_undone(folder: Path) -> Iterator[None]:
    """Forget in the end what was imported from a folder, as the end of a process does."""
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if Path(getattr(module, "__file__", None) or "/").is_relative_to(folder):
                del sys.modules[name]
