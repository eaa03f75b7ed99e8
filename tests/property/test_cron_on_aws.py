"""What EventBridge fires for a planned expression is what the embedded host fires.

EventBridge is played by an evaluator of AWS's own expressions, which knows nothing of how they are made: AWS's fields
and names, one day field a `?`, local times of a schedule's zone. A local time that daylight saving skips is not fired,
one that it repeats is fired once, the first time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from iii_runtime.core.cron import CronError, CronSchedule
from iii_runtime.plan.schedules import plan_firing
from tests.aws.cron_expression import AwsCron

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


def fires(cron: AwsCron, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Yield the instants strictly after another, to the end of the four years."""
    day = after.astimezone(zone).date() - timedelta(days=1)
    while day <= LAST_DAY:
        if cron.has_day(day):
            for hour in sorted(cron.hours):
                for minute in sorted(cron.minutes):
                    local = datetime.combine(day, time(hour, minute), zone)  # fold 0: the first of two
                    instant = local.astimezone(UTC)
                    is_skipped = instant.astimezone(zone).replace(tzinfo=None) != local.replace(tzinfo=None)
                    if instant > after and not is_skipped:
                        yield instant
        day += timedelta(days=1)


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
        found = list(islice(fires(aws, local, instant), count))
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
    assert Counter(f.weekday() for f in fires(saturdays, ZoneInfo("UTC"), START)) == {5: 104}
    first = next(fires(AwsCron.parse("cron(0 8 1 * ? *)"), berlin, START))
    assert first == datetime(2024, 1, 1, 7, tzinfo=UTC)
    every_ten = AwsCron.parse("cron(0/10 * ? * MON-FRI *)")
    assert list(islice(fires(every_ten, ZoneInfo("UTC"), START), 2)) == [START + timedelta(minutes=m) for m in (10, 20)]
    skipped = AwsCron.parse("cron(30 2 31 3 ? *)")  # the night of the shift in 2024, but not in 2025
    assert next(fires(skipped, berlin, START)) == datetime(2025, 3, 31, 0, 30, tzinfo=UTC)
    twice = list(fires(AwsCron.parse("cron(30 2 27 10 ? 2024)"), berlin, START))
    assert twice == [datetime(2024, 10, 27, 0, 30, tzinfo=UTC)]
