"""The entry point: finds the command, and turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from iii_runtime.cli.failure import failure_of
from iii_runtime.core.errors import IiiError

INTERRUPTED = 130
PIPE_CLOSED = 141

# Commands load when they are asked for: a short command does not wait for the libraries of `dev`.
_COMMANDS = {
    "dev": "iii_runtime.cli.dev",
    "trigger": "iii_runtime.cli.trigger",
    "functions": "iii_runtime.cli.functions",
    "queues": "iii_runtime.cli.queues",
    "dlq": "iii_runtime.cli.dlq",
    "state": "iii_runtime.cli.state",
    "stream": "iii_runtime.cli.stream",
    "cron": "iii_runtime.cli.cron",
    "config": "iii_runtime.cli.config",
}


class _Root(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = getattr(importlib.import_module(_COMMANDS[name]), name)
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except IiiError as error:
            raise failure_of(error) from error
        except BrokenPipeError:
            # Whoever read the output, such as `head`, has had enough.
            _forget_stdout()
            raise click.exceptions.Exit(PIPE_CLOSED) from None


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="iii-runtime", prog_name="iii-runtime")
def cli() -> None:
    """Run workers on this machine, call their functions, look after queues, state and streams.

    Exit codes: 0 done, 1 the call failed, 2 usage, configuration or host, 130 interrupted.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        arguments: What follows the program's name; by default those of this process.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments), prog_name="iii-runtime", standalone_mode=False
        )
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return PIPE_CLOSED
    return result if isinstance(result, int) else 0


def _forget_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush does not fail."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, io.UnsupportedOperation):
        return
