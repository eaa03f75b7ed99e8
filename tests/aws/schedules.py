"""EventBridge: rules, schedules with a time zone, and the rule of each minute.

What fires in a test is what AWS would fire. A local time that daylight saving skips does not fire; one that it repeats
fires once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import cast
from zoneinfo import ZoneInfo

from iii_runtime.core.payload import Json
from iii_runtime.plan.app_plan import PlannedSchedule
from iii_runtime.plan.names import Deployment
from tests.aws.cloud import Cloud
from tests.aws.cron_expression import AwsCron
from tests.aws.event_sources import Work

MINUTE = timedelta(minutes=1)
_LOOK_AHEAD = timedelta(days=40)
"""How far the next time is looked for: further than any test moves."""


class ScheduleSource:
    """A rule or a schedule: starts the Lambda of a job at its minutes.

    Args:
        cloud: The services.
        planned: The job.
    """

    def __init__(self, cloud: Cloud, planned: PlannedSchedule) -> None:
        self._cloud = cloud
        self._planned = planned
        self._expression = AwsCron.parse(planned.expression)
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
