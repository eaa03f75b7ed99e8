"""The cron jobs of an app."""

from __future__ import annotations

from iii_runtime.core.cron import CronJob, CronSchedule
from iii_runtime.core.registry import Catalog
from iii_runtime.core.triggers import Cron


def plan_jobs(catalog: Catalog) -> list[CronJob]:
    """Return the job of each cron trigger, in the order of registration."""
    return [
        CronJob(
            trigger_id=spec.id,
            function_id=spec.function_id,
            schedule=CronSchedule.parse(spec.kind.expression, spec.kind.timezone),
            overlap=spec.kind.overlap,
            condition=spec.kind.condition,
        )
        for spec in catalog.triggers
        if isinstance(spec.kind, Cron)
    ]
