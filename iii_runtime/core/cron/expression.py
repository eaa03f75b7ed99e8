"""The cron grammar: from an expression's text to the values that each field allows."""

from __future__ import annotations

from iii_runtime.core.errors import IiiError
from iii_runtime.core.frozen import frozen


class CronError(IiiError):
    """A cron expression or its time zone cannot be used; the message says where and why."""

    code = "cron_invalid"


@frozen(kw_only=True)
class CronFields:
    """The values that each field of a cron expression allows, ascending and never empty.

    A local time matches when every field holds, so two restricted day fields must both hold.

    Attributes:
        seconds: 0-59.
        minutes: 0-59.
        hours: 0-23.
        days: Days of the month, 1-31.
        months: 1-12.
        weekdays: 1-7, where 1 is Sunday and 7 is Saturday.
        years: 1970-2099.
    """

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    years: tuple[int, ...]


def parse_fields(expression: str) -> CronFields:
    """Read an expression of 6 fields (seconds first), of 7 (with a year), or a macro.

    Each field is `*` or a list of values and ranges, each with an optional `/step`. Months and weekdays may be names in
    any case. `?` means `*` and belongs to the two day fields. The macros are `@yearly`, `@monthly`, `@weekly`, `@daily`
    and `@hourly`.

    Raises:
        CronError: The text is not such an expression.
    """
    words = _spell_out(expression)
    if len(words) == len(_FIELDS) - 1:
        words.append("*")
    elif len(words) != len(_FIELDS):
        raise CronError(_count_message(expression, words))
    seconds, minutes, hours, days, months, weekdays, years = (
        _FieldReader(expression=expression, field=field).read(word) for field, word in zip(_FIELDS, words, strict=True)
    )
    return CronFields(
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        years=years,
    )


def _spell_out(expression: str) -> list[str]:
    words = expression.split()
    if not (words and words[0].startswith("@")):
        return words
    macro = _MACROS.get(words[0].lower()) if len(words) == 1 else None
    if macro is None:
        raise CronError(
            f"cron expression {expression!r}: unknown macro; expected one of {', '.join(_MACROS)} or {_LAYOUT}"
        )
    return macro.split()


def _count_message(expression: str, words: list[str]) -> str:
    message = f"cron expression {expression!r}: found {len(words)} fields, expected {_LAYOUT}"
    if len(words) == len(_FIELDS) - 2:
        message += f"; add the seconds in front: {'0 ' + ' '.join(words)!r}"
    return message


@frozen(kw_only=True)
class _Field:
    name: str
    low: int
    high: int
    expected: str
    names: tuple[str, ...] = ()
    is_day: bool = False


@frozen(kw_only=True)
class _FieldReader:
    """Reads one field's text; knows the whole expression for the sake of its errors."""

    expression: str
    field: _Field

    def read(self, word: str) -> tuple[int, ...]:
        if word == "?":
            if not self.field.is_day:
                raise self._error(word, "'?' only as day of month or day of week; write '*'")
            word = "*"
        return tuple(sorted({value for item in word.split(",") for value in self._item(item)}))

    def _item(self, item: str) -> range:
        span, slash, step_text = item.partition("/")
        step = self._step(item, step_text) if slash else 1
        if span == "*":
            return range(self.field.low, self.field.high + 1, step)
        first_text, dash, last_text = span.partition("-")
        first = self._value(item, first_text)
        open_end = self.field.high if slash else first
        last = self._value(item, last_text) if dash else open_end
        if first > last:
            raise self._error(item, "a range that runs upwards; split one that wraps around in two ranges")
        return range(first, last + 1, step)

    def _step(self, item: str, text: str) -> int:
        widest = self.field.high - self.field.low + 1
        step = _number(text)
        if step is None or not 1 <= step <= widest:
            raise self._error(item, f"a step from 1 to {widest} after '/'")
        return step

    def _value(self, item: str, text: str) -> int:
        value = _number(text)
        if value is None:
            value = self._named(text)
        if value is None or not self.field.low <= value <= self.field.high:
            wanted = self.field.expected
            if self.field.is_day and ("#" in text or text[-1:].upper() in {"L", "W"}):
                wanted += "; 'L', 'W' and '#' are not supported"
            raise self._error(item, wanted)
        return value

    def _named(self, text: str) -> int | None:
        if text.isascii():
            for value, name in enumerate(self.field.names, self.field.low):
                if text.upper() in {name, name[:3]}:
                    return value
        return None

    def _error(self, found: str, expected: str) -> CronError:
        return CronError(
            f"cron expression {self.expression!r}, {self.field.name}: found {found!r}, expected {expected}"
        )


def _number(text: str) -> int | None:
    is_short_number = text.isascii() and text.isdigit() and len(text) <= 4
    return int(text) if is_short_number else None


_LAYOUT = "'second minute hour day-of-month month day-of-week' and optionally a year"

_MACROS = {
    "@yearly": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * SUN",
    "@daily": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}

_MONTHS = (
    "JANUARY",
    "FEBRUARY",
    "MARCH",
    "APRIL",
    "MAY",
    "JUNE",
    "JULY",
    "AUGUST",
    "SEPTEMBER",
    "OCTOBER",
    "NOVEMBER",
    "DECEMBER",
)

_WEEKDAYS = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")

_FIELDS = (
    _Field(name="second", low=0, high=59, expected="0-59"),
    _Field(name="minute", low=0, high=59, expected="0-59"),
    _Field(name="hour", low=0, high=23, expected="0-23"),
    _Field(name="day of month", low=1, high=31, expected="1-31", is_day=True),
    _Field(name="month", low=1, high=12, expected="1-12 or JAN-DEC", names=_MONTHS),
    _Field(
        name="day of week",
        low=1,
        high=7,
        expected="SUN-SAT or 1-7 (1 is Sunday, 7 is Saturday)",
        names=_WEEKDAYS,
        is_day=True,
    ),
    _Field(name="year", low=1970, high=2099, expected="1970-2099"),
)
