"""EventBridge: rules, schedules with a time zone, and the rule of each minute.

The expressions are read here by AWS's own rules and by no code of the runtime, so that what fires in a test is what AWS
would fire. A local time that daylight saving skips does not fire; one that it repeats fires once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import cast
from zoneinfo import ZoneInfo

from iii_runtime.core.payload import Json
from iii_runtime.plan.app_plan import PlannedSchedule
from iii_runtime.plan.names import Deployment
from tests.aws.cloud import Cloud
from tests.aws.event_sources import Work

MINUTE = timedelta(minutes=1)
_MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_LOOK_AHEAD = timedelta(days=40)
"""How far the next time is looked for: further than any test moves."""


@dataclass(frozen=True, slots=True)
class Expression:
    """`cron(minute hour day-of-month month day-of-week year)` as EventBridge reads it."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    years: frozenset[int]

    @staticmethod
    def parse(text: str) -> Expression:
        """Read an expression.

        Raises:
            ValueError: EventBridge would not take it.
        """
        found = re.fullmatch(r"cron\((\S+) (\S+) (\S+) (\S+) (\S+) (\S+)\)", text)
        if found is None:
            raise ValueError(f"no cron expression of EventBridge: {text}")
        minutes, hours, days, months, weekdays, years = found.groups()
        if (days == "?") == (weekdays == "?"):
            raise ValueError(f"exactly one of both day fields must be '?': {text}")
        return Expression(
            minutes=_field(minutes, 0, 59),
            hours=_field(hours, 0, 23),
            days=None if days == "?" else _field(days, 1, 31),
            months=_field(months, 1, 12, _MONTHS),
            weekdays=None if weekdays == "?" else _field(weekdays, 1, 7, _DAYS),
            years=_field(years, 1970, 2199),
        )

    def holds(self, local: datetime) -> bool:
        """Return whether it fires at this local minute."""
        is_day = self.days is None or local.day in self.days
        is_weekday = self.weekdays is None or local.isoweekday() % 7 + 1 in self.weekdays
        is_date = is_day and is_weekday and local.month in self.months and local.year in self.years
        return is_date and local.hour in self.hours and local.minute in self.minutes


class ScheduleSource:
    """A rule or a schedule: starts the Lambda of a job at its minutes.

    Args:
        cloud: The services.
        planned: The job.
    """

    def __init__(self, cloud: Cloud, planned: PlannedSchedule) -> None:
        self._cloud = cloud
        self._planned = planned
        self._expression = Expression.parse(planned.expression)
        self._zone = ZoneInfo(planned.timezone)
        self._next = self._after(cloud.clock.now())

    def poll(self) -> Work | None:
        """Return the start of the job if its minute has come."""
        now = self._cloud.clock.now()
        if self._next is None or self._next > now:
            return None
        fired, self._next = self._next, self._after(self._next)
        return _start(self._planned.function, self._event(fired))

    def next_due_ms(self) -> int | None:
        """Return when it fires next."""
        return None if self._next is None else round(self._next.timestamp() * 1000)

    def _event(self, instant: datetime) -> Json:
        tick = {"v": 1, "kind": "cron", "job": self._planned.job_id, "time": _rfc3339(instant)}
        return cast(Json, {"iii": tick})

    def _after(self, instant: datetime) -> datetime | None:
        minute = instant.astimezone(UTC).replace(second=0, microsecond=0)
        end = minute + _LOOK_AHEAD
        while (minute := minute + MINUTE) < end:
            local = minute.astimezone(self._zone)
            if not local.fold and self._expression.holds(local):
                return minute
        return None


class MinuteSource:
    """The rule of each minute, which starts the tick.

    Args:
        cloud: The services.
        names: The names of the app.
        is_needed: Whether a tick could do anything. Where it could not, the minute passes without one, or days of
            virtual time would take minutes.
    """

    def __init__(self, cloud: Cloud, names: Deployment, is_needed: Callable[[], bool]) -> None:
        self._cloud = cloud
        self._names = names
        self._is_needed = is_needed
        now = cloud.clock.now().replace(second=0, microsecond=0)
        # The stage has been there before: the present minute was planned in the last one.
        self._next = now - MINUTE

    def poll(self) -> Work | None:
        """Return the tick of a minute that has come."""
        now = self._cloud.clock.now()
        # Minutes that passed at once had nothing to do; each that has is stopped at.
        self._next = max(self._next, now.replace(second=0, microsecond=0) - MINUTE)
        while self._next <= now:
            minute, self._next = self._next, self._next + MINUTE
            if self._is_needed():
                return self.fire(minute)
        return None

    def fire(self, minute: datetime | None = None) -> Work:
        """Return the tick of a minute, by default the present one."""
        now = self._cloud.clock.now().replace(second=0, microsecond=0)
        return _start(self._names.system_name("tick"), self._event(minute or now))

    def next_due_ms(self) -> int | None:
        """Return when the next tick is due that could do anything."""
        now = self._cloud.clock.now()
        if not self._is_needed():
            return None
        minute = self._next
        if minute < now.replace(second=0, microsecond=0):
            minute = now
        return round(minute.timestamp() * 1000)

    def _event(self, minute: datetime) -> Json:
        rule = self._names.arn("events", f"rule/{self._names.prefix}-x-tick")
        return {
            "version": "0",
            "id": f"tick-{round(minute.timestamp())}",
            "detail-type": "Scheduled Event",
            "source": "aws.events",
            "account": self._names.account,
            "time": _rfc3339(minute),
            "region": self._names.region,
            "resources": [rule],
            "detail": {},
        }


def _start(function: str, event: Json) -> Work:
    return Work(function=function, event=event, done=lambda _: None, failed=lambda: None)


def _rfc3339(instant: datetime) -> str:
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _field(text: str, low: int, high: int, names: list[str] | None = None) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            first, last = low, high
        else:
            begin, _, end = span.partition("-")
            first = _value(begin, low, names)
            last = _value(end, low, names) if end else (high if step else first)
        if not low <= first <= last <= high:
            raise ValueError(f"{part} is not within {low} to {high}")
        values.update(range(first, last + 1, int(step) if step else 1))
    return frozenset(values)


def _value(text: str, low: int, names: list[str] | None) -> int:
    return names.index(text) + low if names is not None and text in names else int(text)
