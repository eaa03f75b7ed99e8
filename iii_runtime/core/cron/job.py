"""A registered cron trigger, its identity, and what its function receives."""

from __future__ import annotations

from datetime import UTC, datetime

from iii_runtime.core.cron.schedule import CronSchedule
from iii_runtime.core.frozen import frozen


@frozen(kw_only=True)
class CronJob:
    """A function that a schedule starts.

    Attributes:
        trigger_id: Names the registration, in errors.
        function_id: The function to start, `service::name`.
        schedule: When.
        overlap: Start a tick although an earlier one still runs; by default it is skipped.
        condition: Function that decides whether a tick fires.
    """

    trigger_id: str
    function_id: str
    schedule: CronSchedule
    overlap: bool = False
    condition: str | None = None

    @property
    def job_id(self) -> str:
        """See `job_id`."""
        return job_id(self.function_id, self.schedule)


def job_id(function_id: str, schedule: CronSchedule) -> str:
    """Return the stable, readable identity of a function on a schedule.

    A changed expression or time zone makes another job, so ticks of the old one never count for it.
    """
    return f"{function_id}|{schedule.expression}|{schedule.timezone}"


def cron_payload(job_id: str, nominal: datetime, actual: datetime) -> dict[str, str]:
    """Return what a function receives for a tick; both aware instants as RFC 3339 in UTC."""
    return {
        "trigger": "cron",
        "job_id": job_id,
        "scheduled_time": _rfc3339(nominal),
        "actual_time": _rfc3339(actual),
    }


def _rfc3339(instant: datetime) -> str:
    return instant.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
