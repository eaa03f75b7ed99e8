"""When a cron expression fires: local times of one time zone as instants in UTC."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from iii_runtime.core.cron.expression import CronError, CronFields, parse_fields
from iii_runtime.core.frozen import frozen


@frozen(kw_only=True)
class CronSchedule:
    """A cron expression in a time zone, read once and known to fire.

    The expression is matched against the local time of the zone. A local time that daylight saving skips does not fire;
    one that it repeats fires once, the first time. So an expression that fires every few minutes pauses while the
    clocks repeat an hour. Ticks lie in the years 1970-2099.

    Attributes:
        expression: The text as written, single-spaced.
        timezone: An IANA name, such as `Europe/Berlin`.
        fields: The values that the expression allows.
    """

    expression: str
    timezone: str
    fields: CronFields

    @classmethod
    def parse(cls, expression: str, timezone: str = "UTC", *, after: datetime | None = None) -> Self:
        """Read an expression of 6 fields (seconds first), of 7 (with a year), or a macro.

        Args:
            expression: Such as `0 30 9 * * MON-FRI`; see `parse_fields` for the grammar.
            timezone: An IANA name.
            after: Refuse an expression without a tick after this aware instant, such as one whose years have all
                passed; by default any tick in 1970-2099 will do.

        Raises:
            CronError: A field, the time zone, or an expression that can never fire.
        """
        fields = parse_fields(expression)
        _check_timezone(timezone)
        schedule = cls(expression=" ".join(expression.split()), timezone=timezone, fields=fields)
        if after is None and _fires_some_year(fields):
            return schedule
        if schedule.next_after(_BEFORE_FIRST if after is None else after) is None:
            since = "" if after is None else f" after {after.isoformat()}"
            raise CronError(
                f"cron expression {expression!r} can never fire: it matches no local time "
                f"of {timezone}{since}; check day, month and year together"
            )
        return schedule

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first tick strictly after an aware instant, in UTC; None when there is no more.

        Raises:
            ValueError: The instant is naive.
        """
        if instant.tzinfo is None:
            raise ValueError(f"an aware instant is needed, got {instant!r}")
        if instant.year > _LAST_YEAR + 1:
            return None
        start = _BEFORE_FIRST if instant.year < _BEFORE_FIRST.year else instant.astimezone(UTC)
        zone = ZoneInfo(self.timezone)
        local = max(start.astimezone(zone).replace(tzinfo=None, fold=0), _LAST_LOCAL_OF_1969)
        while (local_next := self._next_local(local)) is not None:
            tick = local_next.replace(tzinfo=zone).astimezone(UTC)
            is_skipped = tick.astimezone(zone).replace(tzinfo=None) != local_next
            if tick > start and not is_skipped:
                return tick
            local = _last_second_of_shift(local_next, zone)
        return None

    def _next_local(self, local: datetime) -> datetime | None:
        """Return the first matching naive local time after another, with croniter's options pinned."""
        # Loaded here: a process that only registers its triggers does without it.
        from croniter import CroniterBadDateError, croniter  # noqa: PLC0415

        clockwork = croniter(
            self._croniter_expression(),
            local,
            day_or=False,
            max_years_between_matches=_LAST_YEAR - _FIRST_YEAR + 1,
            implement_cron_bug=False,
            second_at_beginning=True,
            expand_from_start_time=False,
        )
        try:
            following = clockwork.get_next(datetime)
        except CroniterBadDateError:
            return None
        return following if following.year <= _LAST_YEAR else None

    def _croniter_expression(self) -> str:
        fields = self.fields
        return " ".join(
            (
                _values_or_star(fields.seconds, 60),
                _values_or_star(fields.minutes, 60),
                _values_or_star(fields.hours, 24),
                _values_or_star(fields.days, 31),
                _values_or_star(fields.months, 12),
                # croniter counts weekdays from 0, Sunday.
                _values_or_star([weekday - 1 for weekday in fields.weekdays], 7),
                _values_or_star(fields.years, _LAST_YEAR - _FIRST_YEAR + 1),
            )
        )


def _check_timezone(timezone: str) -> None:
    try:
        ZoneInfo(timezone)
    # A directory of the zone database and an ill-formed name have errors of their own.
    except (KeyError, ValueError, OSError) as error:
        raise CronError(
            f"cron time zone {timezone!r} is unknown, expected an IANA name such as 'UTC' or 'Europe/Berlin'"
        ) from error


def _fires_some_year(fields: CronFields) -> bool:
    """Return whether it is plain without evaluating that a tick exists; False means that one has to look.

    A day that every month has meets every weekday within the years, and no zone has always skipped it.
    """
    return len(fields.years) == _LAST_YEAR - _FIRST_YEAR + 1 and fields.days[0] <= 28


def _values_or_star(values: Sequence[int], size: int) -> str:
    return "*" if len(values) == size else ",".join(map(str, values))


def _last_second_of_shift(local: datetime, zone: ZoneInfo) -> datetime:
    """Return the last local second of the skipped or repeated stretch around a local time in one.

    Jumping there at once keeps an every-second expression from walking through the whole hour.
    """
    before = _offset(local.replace(tzinfo=zone, fold=0))
    after = _offset(local.replace(tzinfo=zone, fold=1))
    earlier = (local - max(before, after)).replace(tzinfo=UTC)  # Still at the old offset.
    later = (local - min(before, after)).replace(tzinfo=UTC)  # At the new one.
    while later - earlier > _SECOND:
        middle = earlier + (later - earlier) // _SECOND // 2 * _SECOND
        if _offset(middle.astimezone(zone)) == before:
            earlier = middle
        else:
            later = middle
    return earlier.replace(tzinfo=None) + max(before, after)


def _offset(instant: datetime) -> timedelta:
    return instant.utcoffset() or timedelta()


_FIRST_YEAR = 1970
_LAST_YEAR = 2099
_SECOND = timedelta(seconds=1)
_BEFORE_FIRST = datetime(1969, 12, 30, tzinfo=UTC)
_LAST_LOCAL_OF_1969 = datetime(1969, 12, 31, 23, 59, 59)  # noqa: DTZ001 - a local time
