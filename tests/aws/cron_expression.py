"""The cron expressions of EventBridge, read by AWS's own rules and by no code of the runtime."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MAX_CHARACTERS = 256
_FIELD = r"[*?]|[0-9A-Z]+(?:[-/][0-9A-Z]+)?(?:,[0-9A-Z]+(?:-[0-9A-Z]+)?)*"
_EXPRESSION = re.compile(rf"cron\(({_FIELD}) ({_FIELD}) ({_FIELD}) ({_FIELD}) ({_FIELD}) ({_FIELD})\)")


@dataclass(frozen=True, slots=True)
class AwsCron:
    """`cron(minutes hours day-of-month month day-of-week year)` as EventBridge reads it."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    years: frozenset[int]

    @staticmethod
    def parse(text: str) -> AwsCron:
        """Read an expression.

        Raises:
            ValueError: EventBridge would not take it.
        """
        found = _EXPRESSION.fullmatch(text)
        if found is None or len(text) > _MAX_CHARACTERS:
            raise ValueError(f"no cron expression of EventBridge: {text}")
        minutes, hours, days, months, weekdays, years = found.groups()
        if "?" in (minutes, hours, months, years) or (days == "?") == (weekdays == "?"):
            raise ValueError(f"exactly one of both day fields must be '?', and no other: {text}")
        return AwsCron(
            minutes=_values(minutes, 0, 59),
            hours=_values(hours, 0, 23),
            days=None if days == "?" else _values(days, 1, 31),
            months=_values(months, 1, 12, _MONTHS),
            weekdays=None if weekdays == "?" else _values(weekdays, 1, 7, _WEEKDAYS),
            years=_values(years, 1970, 2199),
        )

    def has_day(self, day: date) -> bool:
        """Return whether it fires on this local day."""
        is_day = self.days is None or day.day in self.days
        is_weekday = self.weekdays is None or day.isoweekday() % 7 + 1 in self.weekdays
        return is_day and is_weekday and day.month in self.months and day.year in self.years

    def holds(self, local: datetime) -> bool:
        """Return whether it fires at this local minute."""
        return self.has_day(local.date()) and local.hour in self.hours and local.minute in self.minutes


def _values(text: str, low: int, high: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    if text == "*":
        return frozenset(range(low, high + 1))
    values: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        begin, _, end = span.partition("-")
        first = _value(begin, low, names)
        last = _value(end, low, names) if end else (high if step else first)
        if not low <= first <= last <= high:
            raise ValueError(f"{part} is not within {low} to {high}")
        values.update(range(first, last + 1, int(step) if step else 1))
    return frozenset(values)


def _value(text: str, low: int, names: tuple[str, ...]) -> int:
    return names.index(text) + low if text in names else int(text)
