"""What EventBridge fires for a planned expression is what the embedded host fires.

EventBridge is played by an evaluator of AWS's own expressions, which knows nothing of how they are made: AWS's fields
and names, one day field a `?`, local times of a schedule's zone. A local time that daylight saving skips is not fired,
one that it repeats is fired once, the first time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from iii_runtime.core.cron import CronError, CronSchedule
from iii_runtime.plan.schedules import plan_firing

FIRST_DAY = date(2024, 1, 1)
LAST_DAY = date(2027, 12, 31)
START = datetime(2024, 1, 1, tzinfo=UTC)
DAYS = (LAST_DAY - FIRST_DAY).days + 1
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
)

MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
AWS_FIELD = re.compile(r"[*?]|[0-9A-Z]+([-/][0-9A-Z]+)?(,[0-9A-Z]+(-[0-9A-Z]+)?)*")


@dataclass(frozen=True)
class AwsCron:
    """An expression as AWS documents it: `cron(minutes hours day-of-month month day-of-week year)`."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    years: frozenset[int]

    @staticmethod
    def parse(expression: str) -> AwsCron:
        assert len(expression) <= 256
        found = re.fullmatch(r"cron\((.*)\)", expression)
        assert found is not None, expression
        words = found[1].split(" ")
        assert len(words) == 6, expression
        assert all(AWS_FIELD.fullmatch(word) for word in words), expression
        assert [words[2], words[4]].count("?") == 1, expression
        assert "?" not in [*words[:2], words[3], words[5]]
        return AwsCron(
            minutes=_values(words[0], 0, 59),
            hours=_values(words[1], 0, 23),
            days=None if words[2] == "?" else _values(words[2], 1, 31),
            months=_values(words[3], 1, 12, MONTHS),
            weekdays=None if words[4] == "?" else _values(words[4], 1, 7, WEEKDAYS),
            years=_values(words[5], 1970, 2199),
        )

    def has_day(self, day: date) -> bool:
        sunday_is_1 = day.isoweekday() % 7 + 1
        return (
            day.year in self.years
            and day.month in self.months
            and (self.days is None or day.day in self.days)
            and (self.weekdays is None or sunday_is_1 in self.weekdays)
        )

    def fires(self, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
        """Yield the instants strictly after another, to the end of the four years."""
        day = after.astimezone(zone).date() - timedelta(days=1)
        while day <= LAST_DAY:
            if self.has_day(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        local = datetime.combine(day, time(hour, minute), zone)  # fold 0: the first of two
                        instant = local.astimezone(UTC)
                        is_skipped = instant.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None)
                        if instant > after and not is_skipped:
                            yield instant
            day += timedelta(days=1)


def _values(word: str, low: int, high: int, names: tuple[str, ...] = ()) -> frozenset[int]:
    def value(text: str) -> int:
        number = names.index(text) + low if text in names else int(text)
        assert low <= number <= high
        return number

    if word == "*":
        return frozenset(range(low, high + 1))
    found: set[int] = set()
    for item in word.split(","):
        span, _, step = item.partition("/")
        first, _, last = span.partition("-")
        end = value(last) if last else high if step else value(first)
        found.update(range(value(first), end + 1, int(step or 1)))
    return frozenset(found)


def embedded(schedule: CronSchedule, after: datetime) -> Iterator[datetime]:
    instant = schedule.next_after(after)
    while instant is not None:
        yield instant
        instant = schedule.next_after(instant)


def shifts_of(zone: str) -> list[datetime]:
    """The midnights before the days of the four years on which the offset of a zone changes."""
    midnights = [START + timedelta(days=number) for number in range(DAYS)]
    offsets = [midnight.astimezone(ZoneInfo(zone)).utcoffset() for midnight in midnights]
    return [midnights[index] for index in range(DAYS - 1) if offsets[index] != offsets[index + 1]]


SHIFTS = {zone: shifts_of(zone) for zone in ZONES}


@st.composite
def fields(draw: st.DrawFn, low: int, high: int, *, plain: bool = False) -> str:
    if plain or draw(st.booleans()):
        return "*"
    number = st.integers(low, high)
    kind = draw(st.sampled_from(("list", "range", "step", "open step", "star step")))
    first, last = sorted((draw(number), draw(number)))
    step = draw(st.integers(1, high - low + 1))
    match kind:
        case "list":
            return ",".join(map(str, draw(st.lists(number, min_size=1, max_size=4))))
        case "range":
            return f"{first}-{last}"
        case "step":
            return f"{first}-{last}/{step}"
        case "open step":
            return f"{first}/{step}"
        case _:
            return f"*/{step}"


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """With one day field free, so that EventBridge can express nearly all of them."""
    free = draw(st.booleans())
    parts = [draw(fields(low, high)) for low, high in ((0, 59), (0, 23))]
    day, month = draw(fields(1, 31, plain=free)), draw(fields(1, 12))
    weekday = draw(fields(1, 7, plain=not free))
    return " ".join(["0", *parts, day, month, weekday])


def parsed(expression: str, zone: str) -> CronSchedule:
    try:
        return CronSchedule.parse(expression, zone)
    except CronError as error:
        assume("can never fire" not in error.message)
        raise


def assert_fires_alike(expression: str, zone: str, instants: list[datetime], count: int) -> None:
    schedule = parsed(expression, zone)
    firing = plan_firing(schedule)
    assert firing.kind == ("rule" if zone == "UTC" else "schedule")
    aws, local = AwsCron.parse(firing.expression), ZoneInfo(zone)
    for instant in instants:
        found = list(islice(aws.fires(local, instant), count))
        expected = list(islice(embedded(schedule, instant), len(found) + 1))[: len(found)]
        assert found == expected
        following = schedule.next_after(found[-1] if found else instant)
        if len(found) < count:
            assert following is None or following.astimezone(local).date() > LAST_DAY


zones = st.sampled_from(ZONES)
instants = st.integers(0, DAYS * 24 * 60).map(lambda minutes: START + timedelta(minutes=minutes))


@settings(max_examples=60)
@given(expressions(), zones, instants)
@example("0 30 2 * * *", "Europe/Berlin", START)
@example("0 0 0 29 2 *", "America/New_York", START)
def test_from_any_moment_on_the_next_ticks_are_the_same(expression: str, zone: str, instant: datetime) -> None:
    assert_fires_alike(expression, zone, [instant], 12)


@settings(max_examples=40)
@given(expressions(), st.sampled_from([zone for zone in ZONES if SHIFTS[zone]]), st.data())
def test_around_every_shift_of_daylight_saving_the_ticks_are_the_same(
    expression: str, zone: str, data: st.DataObject
) -> None:
    """Every shift of the four years, each entered within a day of it."""
    offset = timedelta(minutes=data.draw(st.integers(0, 24 * 60)))
    assert_fires_alike(expression, zone, [shift + offset for shift in SHIFTS[zone]], 6)


@settings(max_examples=12)
@given(fields(1, 31), fields(1, 12), zones)
def test_on_every_day_of_four_years_the_ticks_are_the_same(day: str, month: str, zone: str) -> None:
    assert_fires_alike(f"0 15 12 {day} {month} ?", zone, [START], 4 * 366)


@settings(max_examples=12)
@given(fields(1, 7), fields(1, 12), zones)
def test_on_every_weekday_of_four_years_the_ticks_are_the_same(weekday: str, month: str, zone: str) -> None:
    assert_fires_alike(f"0 15 12 ? {month} {weekday}", zone, [START], 4 * 366)


@pytest.mark.parametrize("zone", [zone for zone in ZONES if SHIFTS[zone]])
def test_on_the_days_of_shifts_every_half_hour_is_the_same(zone: str) -> None:
    """All of them, with each tick of the day before and of two days after."""
    assert len(SHIFTS[zone]) >= 8
    assert_fires_alike("0 */30 * * * *", zone, SHIFTS[zone], 96)


@given(expressions(), fields(0, 59), st.booleans())
def test_what_eventbridge_cannot_express_is_left_to_the_tick_as_it_is_written(
    expression: str, second: str, both_days: bool
) -> None:
    _, minute, hour, day, month, weekday = expression.split()
    text = f"{second} {minute} {hour} {'13' if both_days else day} {month} {'6' if both_days else weekday}"
    schedule = parsed(text, "UTC")
    firing = plan_firing(schedule)
    is_simple = schedule.fields.seconds == (0,) and not both_days
    assert (firing.kind == "tick") == (not is_simple)
    if firing.kind == "tick":
        assert firing.expression == schedule.expression


def test_the_evaluator_reads_the_examples_of_aws() -> None:
    """From the EventBridge user guide, so that it is not only right about what we write."""
    berlin = ZoneInfo("Europe/Berlin")
    saturdays = AwsCron.parse("cron(0 12 ? * SAT 2024-2025)")
    assert Counter(f.weekday() for f in saturdays.fires(ZoneInfo("UTC"), START)) == {5: 104}
    first = next(AwsCron.parse("cron(0 8 1 * ? *)").fires(berlin, START))
    assert first == datetime(2024, 1, 1, 7, tzinfo=UTC)
    every_ten = AwsCron.parse("cron(0/10 * ? * MON-FRI *)")
    assert list(islice(every_ten.fires(ZoneInfo("UTC"), START), 2)) == [START + timedelta(minutes=m) for m in (10, 20)]
    skipped = AwsCron.parse("cron(30 2 31 3 ? *)")  # the night of the shift in 2024, but not in 2025
    assert next(skipped.fires(berlin, START)) == datetime(2025, 3, 31, 0, 30, tzinfo=UTC)
    twice = list(AwsCron.parse("cron(30 2 27 10 ? 2024)").fires(berlin, START))
    assert twice == [datetime(2024, 10, 27, 0, 30, tzinfo=UTC)]
