"""Works out everything there is to create on AWS from manifest and stage alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from iii_runtime.plan.app_plan import AppPlan
from iii_runtime.plan.aws_checks import check_on_aws
from iii_runtime.plan.basis import Basis
from iii_runtime.plan.checks import check_anywhere
from iii_runtime.plan.deployed import DeployedPlan, compare_with_deployed, is_of, warn_of_others
from iii_runtime.plan.findings import AppInvalidError, Finding, errors_first, place_in_config
from iii_runtime.plan.functions import check_functions, plan_functions
from iii_runtime.plan.manifest import Manifest
from iii_runtime.plan.names import Deployment
from iii_runtime.plan.routes import plan_access
from iii_runtime.plan.schedules import plan_schedules
from iii_runtime.plan.sqs import plan_sqs_queues, plan_topics
from iii_runtime.plan.stacks import check_stacks, count_stacks, place_functions


def plan_app(
    manifest: Manifest,
    deployment: Deployment,
    *,
    previous: DeployedPlan | None = None,
    others: Sequence[str] = (),
    now: datetime | None = None,
) -> AppPlan:
    """Return everything to create for an app in a stage.

    Args:
        manifest: The app.
        deployment: The stage, region and account.
        previous: What the last deployment of the stage has made; None if there was none.
        others: Other apps of the project that are deployed in the stage.
        now: The present, aware; None does not look for schedules that have run out.

    Raises:
        AppInvalidError: Something cannot be, or would silently go wrong. It has all findings at once.
    """
    config = manifest.config
    stage = config.aws.stage(deployment.stage)
    known = previous if previous is not None and is_of(previous, deployment) else None
    basis = _place(Basis.of(config, manifest.catalog, deployment), stage.stacks, known)
    plan, findings = _draft(basis)
    findings += [
        *check_anywhere(config, manifest.catalog),
        *check_on_aws(basis, now=now),
        *check_functions(basis, plan.functions.values()),
        *check_stacks(
            plan,
            place_in_config(config, config.aws.line),
            lambda stacks: _draft(_place(basis, stacks, known))[0],
        ),
        *(warn_of_others(deployment, others) if previous is None else compare_with_deployed(plan, previous)),
    ]
    return replace(plan, warnings=_without_errors(findings))


def _place(basis: Basis, stacks: int, previous: DeployedPlan | None) -> Basis:
    return replace(
        basis,
        stage=replace(basis.stage, stacks=stacks),
        stacks=place_functions(basis.catalog.functions, stacks, previous),
        queue_stacks={} if previous is None else {name: queue.stack for name, queue in previous.queues.items()},
    )


def _draft(basis: Basis) -> tuple[AppPlan, list[Finding]]:
    schedules, access = plan_schedules(basis), plan_access(basis)
    plan = AppPlan(
        deployment=basis.deployment,
        stage=basis.stage,
        functions=plan_functions(basis, schedules),
        queues=plan_sqs_queues(basis),
        schedules=schedules,
        routes=access.routes,
        topics=plan_topics(basis),
        cors=basis.config.http.cors,
        jwt=basis.config.http.jwt,
        stream_auth=access.stream_auth,
        stack_count=count_stacks(basis.stage.stacks),
    )
    return plan, list(access.findings)


def _without_errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    found = errors_first(findings)
    if any(finding.level == "error" for finding in found):
        raise AppInvalidError(found)
    return found
