"""What an app is synthesised from: the settings of the constructs, and the plan that follows from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from iii_runtime.adapters.deployed_files import (
    deployed_at,
    other_apps,
    read_deployed,
    remember_last_deploy,
    rename_earlier,
)
from iii_runtime.adapters.system import SystemClock
from iii_runtime.cdk.bundle import Platform, current_bundle
from iii_runtime.cdk.file_tree import COMPILED
from iii_runtime.cdk.functions import FunctionSettings
from iii_runtime.cdk.project import Project, default_config, discover_project
from iii_runtime.core.config.schema import STAGE_RULE
from iii_runtime.core.config.values import DEFAULT_STAGE
from iii_runtime.core.errors import HostError
from iii_runtime.hosts.embedded.manifest_discovery import DiscoveredApp
from iii_runtime.plan.app import plan_app
from iii_runtime.plan.app_plan import AppPlan
from iii_runtime.plan.deployed import home_of, is_of
from iii_runtime.plan.manifest import read_manifest
from iii_runtime.plan.names import Deployment


class AppSettings(TypedDict, total=False):
    """The keywords of `IiiApp` and `IiiStacks`. All may be left out.

    Attributes:
        functions: Files, folders or dotted modules that register the functions; `functions` by default.
        config: The configuration file; by default `iii-config.yaml`, if there is one. None runs on defaults.
        stage: Name of the stage; by default that of the context (`-c stage=prod`), else `dev`.
        project_root: Folder that the above is relative to; the current one by default.
        include: Files and folders that the code needs besides the modules it imports.
        requirements: File with the libraries of the code; `requirements.txt` beside it by default, if there is one.
        manifest: What the app registers, see `iii_runtime.plan.manifest`; by default the code is imported to find out.
        code: What the Lambdas run; by default the bundle that `iii-runtime bundle` builds.
        environment: Variables for all registered functions, besides those they declare.
        alarms: Whether there are alarms, which cost something each; True by default, unless the context says
            `-c alarms=off`.
        alarm_email: Who is written to when an alarm is raised; by default that of the context (`-c alarm_email=...`).
        websocket_access_logs: Whether the WebSocket API logs its connections. It needs a role that is set once for an
            account and region in the settings of API Gateway. False by default.
    """

    functions: str | Sequence[str]
    config: str | None
    stage: str | None
    project_root: str | Path | None
    include: Sequence[str]
    requirements: str | None
    manifest: Mapping[str, Any] | None
    code: lambda_.Code | None
    environment: Mapping[str, str] | None
    alarms: bool | None
    alarm_email: str | None
    websocket_access_logs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """What stacks are made from.

    Attributes:
        plan: Everything to create.
        make_code: Makes the code of the Lambdas, once for each stack.
        environment: Variables for all registered functions.
        has_alarms: Whether there are alarms.
        alarm_email: Who is written to when an alarm is raised.
        websocket_access_logs: Whether the WebSocket API logs its connections.
    """

    plan: AppPlan
    make_code: Callable[[], lambda_.Code]
    environment: Mapping[str, str]
    has_alarms: bool
    alarm_email: str | None
    websocket_access_logs: bool

    def for_stack(self) -> FunctionSettings:
        """Return what the Lambdas of one stack have in common."""
        return FunctionSettings(stage=self.plan.stage, code=self.make_code(), environment=self.environment)


def prepare(scope: Construct, settings: AppSettings, *, inside: tuple[str, str] | None = None) -> Synthesis:
    """Find out what an app is to be made of.

    Args:
        scope: Where the context is looked up.
        settings: The keywords of the construct.
        inside: Name of the stack and id of the construct, if the app is inside a stack of the user's.

    Raises:
        AppInvalidError: Something cannot be, or would silently go wrong.
        HostError: `bundle_missing`, `deployed_unreadable`, `stack_taken`, `stage_invalid`, and what `discover_project`
            raises; the message says what to do.
    """
    project = _project(settings)
    discovered = _discover(project, settings)
    manifest = read_manifest(discovered.manifest)
    deployment = Deployment(
        app=manifest.config.aws.app,
        stage=_checked(settings.get("stage") or _context(scope, "stage") or DEFAULT_STAGE),
        region=cdk.Aws.REGION,
        account=cdk.Aws.ACCOUNT_ID,
        partition=cdk.Aws.PARTITION,
    )
    remember_last_deploy(project.root)
    if inside is not None:
        _refuse_another(project.root, deployment, *inside)
    rename_earlier(project.root, deployment.app, deployment.stage)
    plan = plan_app(
        manifest,
        deployment,
        previous=read_deployed(project.root, deployment.app, deployment.stage),
        others=other_apps(project.root, deployment.app, deployment.stage),
        now=SystemClock().now(),
    )
    alarms = settings.get("alarms")
    return Synthesis(
        plan=plan,
        make_code=_code(project, discovered, plan, settings.get("code")),
        environment=settings.get("environment") or {},
        has_alarms=_context(scope, "alarms") != "off" if alarms is None else alarms,
        alarm_email=settings.get("alarm_email") or _context(scope, "alarm_email"),
        websocket_access_logs=settings.get("websocket_access_logs", False),
    )


def output_prefix(construct_id: str) -> str:
    """Return what the names of the outputs of a construct start with."""
    return "".join(filter(str.isalnum, construct_id))


def _refuse_another(root: Path, names: Deployment, stack: str, construct_id: str) -> None:
    """Refuse an app or stage in place of another one: CloudFormation would delete what that has."""
    for other in deployed_at(root, home_of(stack, output_prefix(construct_id))):
        if not is_of(other, names):
            raise HostError(
                f"construct '{construct_id}' of stack '{stack}' has app '{other.app}' in stage {other.stage}, and "
                f"would get app '{names.app}' in stage {names.stage}: AWS would delete what is there. Give each app "
                f"and stage a stack of its own, such as Stack(app, '{names.prefix}'); or, if the old one is "
                f"destroyed, remove {other.source}.",
                code="stack_taken",
            )


def _project(settings: AppSettings) -> Project:
    functions = settings.get("functions", "functions")
    environment = settings.get("environment") or {}
    root = Path(settings.get("project_root") or Path.cwd()).resolve()
    return Project(
        root=root,
        functions=(functions,) if isinstance(functions, str) else tuple(functions),
        config=settings.get("config", default_config(root)),
        include=tuple(settings.get("include", ())),
        requirements=settings.get("requirements"),
        # What is known only after the deployment is no use to the import.
        environment={name: value for name, value in environment.items() if not cdk.Token.is_unresolved(value)},
    )


def _discover(project: Project, settings: AppSettings) -> DiscoveredApp:
    manifest = settings.get("manifest")
    if manifest is None:
        return discover_project(project)
    if settings.get("code") is not None:
        return DiscoveredApp(manifest=dict(manifest), code={})
    return DiscoveredApp(manifest=dict(manifest), code=discover_project(project).code)


def _code(
    project: Project, discovered: DiscoveredApp, plan: AppPlan, given: lambda_.Code | None
) -> Callable[[], lambda_.Code]:
    if given is not None:
        return lambda: given
    platform = Platform(plan.stage.architecture, plan.stage.python)
    bundle = str(current_bundle(project, platform, discovered))
    # A code is of one stack; the files behind it are uploaded once all the same. What Python compiles when somebody
    # imports from the bundle meanwhile is not deployed, and does not change the hash.
    return lambda: lambda_.Code.from_asset(bundle, exclude=[COMPILED, f"**/{COMPILED}"])


def _context(scope: Construct, key: str) -> str | None:
    value = scope.node.try_get_context(key)
    return str(value) if value else None


def _checked(stage: str) -> str:
    if re.fullmatch(STAGE_RULE, stage) is None:
        raise HostError(
            f"'{stage}' is no name of a stage: 2 to 12 lower-case letters and digits, the first one a letter.",
            code="stage_invalid",
        )
    return stage
