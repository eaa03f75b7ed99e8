"""Which stage on AWS a command is about: the options that choose it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

Handler = Callable[..., None]

_CHOSEN = "iii_runtime.cli.stage"
"""Where a context keeps the stage of its command."""

_HERE = {"data": "--data", "targets": "--worker"}
"""Options that are about this machine, by the name of their parameter."""
_THERE = {"stage_app": "--app", "stage_region": "--region", "stage_profile": "--profile"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A stage of an app on AWS.

    Attributes:
        name: As in `cdk deploy -c stage=NAME`.
        app: The app; None for that of the configuration.
        region: AWS region; None for that of the environment or profile.
        profile: Profile of the AWS configuration whose credentials are used; None for the usual ones.
    """

    name: str
    app: str | None = None
    region: str | None = None
    profile: str | None = None

    @property
    def options(self) -> str:
        """The options that choose it, for a command that people copy."""
        chosen = {"--stage": self.name, "--app": self.app, "--region": self.region, "--profile": self.profile}
        return shlex.join(word for option, value in chosen.items() if value is not None for word in (option, value))


def stage_option(handler: Handler) -> Handler:
    """Add `--stage` and the options that go with it, which `with_place` puts into the place."""
    for decorate in (
        click.option("--profile", "stage_profile", metavar="NAME", help="With --stage: profile with AWS credentials."),
        click.option("--region", "stage_region", metavar="NAME", help="With --stage: AWS region."),
        click.option("--app", "stage_app", metavar="NAME", help="With --stage: the app; else the configuration says."),
        # Without a variable of the environment: what a command may destroy has to be seen in the command.
        click.option("--stage", "stage_name", metavar="NAME", callback=checked_name, help="Go to this stage on AWS."),
    ):
        handler = decorate(handler)
    return handler


def taken_stage(options: dict[str, Any]) -> Stage | None:
    """Take what `stage_option` has added out of a command's options; None without `--stage`.

    Raises:
        click.UsageError: An option for a stage without one, or an option for this machine with one.
    """
    name = options.pop("stage_name", None)
    app, region, profile = (options.pop(parameter, None) for parameter in _THERE)
    if name is None:
        for parameter, option in _THERE.items():
            if _is_given(parameter):
                raise click.UsageError(f"{option} needs --stage.")
        return None
    for parameter, option in _HERE.items():
        if _is_given(parameter):
            raise click.UsageError(f"{option} is for this machine; it and --stage exclude each other.")
    stage = Stage(name=name, app=app, region=region, profile=profile)
    click.get_current_context().meta[_CHOSEN] = stage
    return stage


def chosen_stage(ctx: click.Context) -> Stage | None:
    """Return the stage that the command run under this context is about, even after it has failed."""
    stage: Stage | None = ctx.meta.get(_CHOSEN)
    return stage


def checked_name(_ctx: click.Context, _param: click.Parameter, name: str | None) -> str | None:
    """Return the name of a stage as it was given; a usage error if it can be none."""
    if name is None:
        return None
    # Here because most commands have no stage and need no schema.
    from iii_runtime.core.config.schema import STAGE_RULE  # noqa: PLC0415

    if re.fullmatch(STAGE_RULE, name) is None:
        raise click.BadParameter(
            f"'{name}' is no stage name of 2 to 12 lower-case letters and digits, the first one a letter."
        )
    return name


def _is_given(parameter: str) -> bool:
    return click.get_current_context().get_parameter_source(parameter) is ParameterSource.COMMANDLINE
