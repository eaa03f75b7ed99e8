"""Cron on AWS: which of rule, schedule or minute tick fires an expression, and how EventBridge spells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iii_runtime.core.cron import CronFields, CronSchedule, job_id
from iii_runtime.core.registry import TriggerSpec
from iii_runtime.core.triggers import Cron
from iii_runtime.plan.app_plan import PlannedSchedule, ScheduleKind
from iii_runtime.plan.basis import Basis
from iii_runtime.plan.limits import SCHEDULE_CHARACTERS

_UTC = frozenset({"UTC", "Etc/UTC"})
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_SHORTEST_RANGE = 3
_ALL_YEARS = 2099 - 1970 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """What fires a cron expression on AWS.

    Attributes:
        kind: An EventBridge rule, an EventBridge Scheduler schedule, or the minute tick.
        expression: `cron(...)` as EventBridge takes it; for the minute tick the expression as written.
    """

    kind: ScheduleKind
    expression: str


def plan_schedules(basis: Basis) -> tuple[PlannedSchedule, ...]:
    """Return the cron jobs of an app, each once, and what fires them."""
    planned = []
    for identity, (schedule, trigger) in cron_jobs(basis).items():
        firing = plan_firing(schedule)
        planned.append(
            PlannedSchedule(
                job_id=identity,
                kind=firing.kind,
                name=identity if firing.kind == "tick" else basis.deployment.rule_name(identity),
                expression=firing.expression,
                timezone=schedule.timezone,
                function=basis.deployment.function_name(trigger.function_id),
                function_id=trigger.function_id,
                stack=basis.stack_of(trigger.function_id),
                source=trigger.source,
            )
        )
    return tuple(planned)


def cron_jobs(basis: Basis) -> dict[str, tuple[CronSchedule, TriggerSpec]]:
    """Return schedule and trigger of each cron job, by the job's id; of several triggers of one job the last counts."""
    jobs: dict[str, tuple[CronSchedule, TriggerSpec]] = {}
    for trigger in basis.triggers(Cron):
        if isinstance(trigger.kind, Cron):
            schedule = CronSchedule.parse(trigger.kind.expression, trigger.kind.timezone)
            jobs[job_id(trigger.function_id, schedule)] = (schedule, trigger)
    return jobs


def plan_firing(schedule: CronSchedule) -> Firing:
    """Return what fires a cron expression on AWS.

    EventBridge fires to the minute and takes one restricted day field. So a second other than 0, both day fields
    restricted, and what is longer than 256 characters are left to the minute tick. Of the rest UTC is a rule, any other
    time zone a schedule.
    """
    text = render_for_eventbridge(schedule.fields)
    if text is None:
        return Firing(kind="tick", expression=schedule.expression)
    return Firing(kind="rule" if schedule.timezone in _UTC else "schedule", expression=text)


def render_for_eventbridge(fields: CronFields) -> str | None:
    """Return `cron(minute hour day-of-month month day-of-week year)`; None if EventBridge cannot express it.

    The text is made from the values alone: weekdays by name, because the numbers of others differ, and exactly one `?`.
    """
    any_day, any_weekday = len(fields.days) == 31, len(fields.weekdays) == 7
    if fields.seconds != (0,) or not (any_day or any_weekday):
        return None
    text = " ".join(
        (
            _stepped_or_listed(fields.minutes, 0, 59),
            _stepped_or_listed(fields.hours, 0, 23),
            _stepped_or_listed(fields.days, 1, 31) if any_weekday else "?",
            _stepped_or_listed(fields.months, 1, 12),
            "?" if any_weekday else _listed([_WEEKDAYS[day - 1] for day in fields.weekdays], fields.weekdays),
            # Without steps: EventBridge counts on to 2199.
            "*" if len(fields.years) == _ALL_YEARS else _listed(fields.years, fields.years),
        )
    )
    expression = f"cron({text})"
    return expression if len(expression) <= SCHEDULE_CHARACTERS else None


def _stepped_or_listed(values: Sequence[int], low: int, high: int) -> str:
    if len(values) == high - low + 1:
        return "*"
    step = values[1] - values[0] if len(values) > 2 else 0
    if step > 1 and tuple(values) == tuple(range(values[0], high + 1, step)):
        return f"{values[0]}/{step}"
    return _listed(values, values)


def _listed(names: Sequence[object], values: Sequence[int]) -> str:
    """Return the names as a list, in which three or more with values that follow each other are a range."""
    items: list[str] = []
    for first, last in _runs(values):
        if last - first + 1 >= _SHORTEST_RANGE:
            items.append(f"{names[first]}-{names[last]}")
        else:
            items += map(str, names[first : last + 1])
    return ",".join(items)


def _runs(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last index of each stretch of values that follow each other."""
    start = 0
    for index, value in enumerate(values):
        if index + 1 == len(values) or values[index + 1] != value + 1:
            yield start, index
            start = index + 1
