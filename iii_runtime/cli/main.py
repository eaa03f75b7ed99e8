"""The entry point: finds the command, and turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import Any

import click

from iii_runtime.cli.failure import failure_of, failure_of_output, tell_program
from iii_runtime.cli.output import say
from iii_runtime.cli.stage import chosen_stage
from iii_runtime.cli.standard_streams import OutputLostError, forget_stream, guard_streams
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
    "runs": "iii_runtime.cli.runs",
    "cron": "iii_runtime.cli.cron",
    "config": "iii_runtime.cli.config",
    "bundle": "iii_runtime.cli.bundle",
}
_AS_JSON = "iii_runtime.cli.as_json"
"""Where a context keeps that errors are for a program."""


class _Root(click.Group):
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        as_json = _wants_json(args)
        with _told(as_json=as_json):
            ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta[_AS_JSON] = as_json
        return ctx

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = getattr(importlib.import_module(_COMMANDS[name]), name)
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        close = [known for known in _COMMANDS if known.startswith(name)] or get_close_matches(name, _COMMANDS)
        if name not in _COMMANDS and close:
            ctx.fail(f"No such command '{name}'. Did you mean {' or '.join(map(repr, close))}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with _told(as_json=ctx.meta[_AS_JSON], ctx=ctx):
            return super().invoke(ctx)


@contextmanager
def _told(*, as_json: bool, ctx: click.Context | None = None) -> Iterator[None]:
    """Turn errors into those that click shows, or tell a program of them."""
    try:
        try:
            yield
        except IiiError as error:
            stage = None if ctx is None else chosen_stage(ctx)
            raise failure_of(error, options="" if stage is None else stage.options) from error
    except click.ClickException as error:
        if not as_json:
            raise
        tell_program(error)
        raise click.exceptions.Exit(error.exit_code) from error


def _wants_json(arguments: Sequence[str]) -> bool:
    """Look at the arguments as they are: those that cannot be parsed are told of in the same form."""
    return "--json" in (arguments[: arguments.index("--")] if "--" in arguments else arguments)


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
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
    guard_streams()
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = _run(given)
        sys.stdout.flush()
    except OutputLostError as lost:
        forget_stream(lost.descriptor)
        if lost.is_unread:
            return PIPE_CLOSED
        failure = failure_of_output(lost)
        with suppress(OutputLostError):
            if _wants_json(given):
                tell_program(failure)
            else:
                failure.show()
        return failure.exit_code
    return code


def _run(arguments: list[str]) -> int:
    try:
        result = cli.main(args=arguments, prog_name="iii-runtime", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        say("interrupted")
        return INTERRUPTED
    return result if isinstance(result, int) else 0
