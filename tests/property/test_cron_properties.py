"""Laws of cron schedules, checked against an evaluator of their own that steps through local time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from iii_runtime.core.cron import CronError, CronSchedule

ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
)
unhurried = settings(deadline=None)
START = datetime(2024, 1, 1, tzinfo=UTC)
SPAN = timedelta(days=4 * 365 + 1)

Values = frozenset[int] | None
"""What a field allows; None is everything."""


class Pattern:
    """An expression together with what it allows, by field."""

    def __init__(self, texts: list[str], values: list[Values]) -> None:
        self.expression = " ".join(texts)
        self.values = values

    def __repr__(self) -> str:
        return self.expression

    def matches(self, local: datetime) -> bool:
        sunday_first = local.isoweekday() % 7 + 1
        parts = (local.second, local.minute, local.hour, local.day, local.month, sunday_first)
        return all(allowed is None or part in allowed for part, allowed in zip(parts, self.values, strict=True))


@st.composite
def fields(draw: st.DrawFn, low: int, high: int) -> tuple[str, Values]:
    number = st.integers(low, high)
    kind = draw(st.sampled_from(("star", "star", "list", "range", "step", "open step")))
    if kind == "list":
        chosen = draw(st.lists(number, min_size=1, max_size=3))
        return ",".join(map(str, chosen)), frozenset(chosen)
    first, last = sorted((draw(number), draw(number)))
    step = draw(st.integers(1, high - low + 1))
    match kind:
        case "range":
            return f"{first}-{last}", frozenset(range(first, last + 1))
        case "step":
            return f"{first}-{last}/{step}", frozenset(range(first, last + 1, step))
        case "open step":
            return f"{first}/{step}", frozenset(range(first, high + 1, step))
        case _:
            return "*", None


@st.composite
def patterns(draw: st.DrawFn, *, any_second: bool = False) -> Pattern:
    """Of minute granularity, unless any second may be chosen."""
    seconds = draw(fields(0, 59)) if any_second else ("0", frozenset({0}))
    others = [draw(fields(low, high)) for low, high in ((0, 59), (0, 23), (1, 31), (1, 12), (1, 7))]
    return Pattern([text for text, _ in (seconds, *others)], [allowed for _, allowed in (seconds, *others)])


zones = st.sampled_from(ZONES)
offsets = st.integers(0, int(SPAN.total_seconds()))
instants = st.builds(lambda seconds: START + timedelta(seconds=seconds), offsets)


@st.composite
def shifts(draw: st.DrawFn) -> tuple[str, datetime]:
    """A zone, and an instant within some hours of a change of its offset."""
    zone = draw(st.sampled_from([zone for zone in ZONES if zone not in {"UTC", "Asia/Kathmandu", "Pacific/Apia"}]))
    day = START + timedelta(days=draw(st.integers(0, SPAN.days)))
    for _ in range(366):
        following = day + timedelta(days=1)
        if day.astimezone(ZoneInfo(zone)).utcoffset() != following.astimezone(ZoneInfo(zone)).utcoffset():
            break
        day = following
    return zone, day + timedelta(minutes=draw(st.integers(-120, 24 * 60)))


def stepped(pattern: Pattern, zone: str, after: datetime, step: timedelta, count: int) -> Iterator[datetime]:
    """Ticks among the next `count` instants: the local time matches and is there for the first time."""
    instant = after.replace(microsecond=0)
    if step == timedelta(minutes=1):
        instant = instant.replace(second=0)
    for _ in range(count):
        instant += step
        local = instant.astimezone(ZoneInfo(zone))
        if local.fold == 0 and pattern.matches(local):
            yield instant


def parsed(pattern: Pattern, zone: str) -> CronSchedule:
    try:
        return CronSchedule.parse(pattern.expression, zone)
    except CronError as error:
        assume("can never fire" not in error.message)
        raise


def assert_agrees(pattern: Pattern, zone: str, instant: datetime, step: timedelta, count: int) -> None:
    schedule = parsed(pattern, zone)
    expected = next(stepped(pattern, zone, instant, step, count), None)
    found = schedule.next_after(instant)
    if expected is None:
        assert found is None or found > instant + (count - 1) * step
    else:
        assert found == expected


@unhurried
@given(patterns(), zones, instants)
def test_the_next_tick_is_the_first_minute_that_matches(pattern: Pattern, zone: str, instant: datetime) -> None:
    assert_agrees(pattern, zone, instant, timedelta(minutes=1), 3 * 24 * 60)


@unhurried
@given(patterns(), shifts())
def test_the_next_tick_is_the_first_minute_that_matches_around_a_shift(
    pattern: Pattern, shift: tuple[str, datetime]
) -> None:
    assert_agrees(pattern, *shift, timedelta(minutes=1), 2 * 24 * 60)


@unhurried
@given(patterns(any_second=True), st.one_of(shifts(), st.tuples(zones, instants)))
def test_the_next_tick_is_the_first_second_that_matches(pattern: Pattern, at: tuple[str, datetime]) -> None:
    assert_agrees(pattern, *at, timedelta(seconds=1), 2 * 60 * 60)


@unhurried
@given(patterns(any_second=True), zones, instants)
def test_the_next_day_with_a_tick_is_the_first_day_that_matches(pattern: Pattern, zone: str, instant: datetime) -> None:
    """Days are stepped through for four years; the noon of no zone in the list is ever shifted."""
    daily = Pattern(
        ["0", "0", "12", *pattern.expression.split()[3:]], [*[frozenset({v}) for v in (0, 0, 12)], *pattern.values[3:]]
    )
    schedule = parsed(daily, zone)
    found = schedule.next_after(instant)
    local_day = instant.astimezone(ZoneInfo(zone)).replace(hour=12, minute=0, second=0, microsecond=0)
    noons = (local_day + timedelta(days=day) for day in range(4 * 366))
    expected = next((noon for noon in noons if noon > instant and daily.matches(noon)), None)
    if expected is None:
        assert found is None or found > instant + timedelta(days=4 * 365)
    else:
        assert found == expected


@unhurried
@given(patterns(any_second=True), zones, instants)
def test_ticks_ascend_and_match_the_local_time(pattern: Pattern, zone: str, instant: datetime) -> None:
    schedule = parsed(pattern, zone)
    before = instant
    for _ in range(5):
        tick = schedule.next_after(before)
        if tick is None:
            break
        assert tick > before
        assert pattern.matches(tick.astimezone(ZoneInfo(zone)))
        before = tick


@unhurried
@given(patterns(any_second=True), zones, instants, st.integers(1, 10**6))
def test_from_just_before_a_tick_the_next_one_is_this_tick(
    pattern: Pattern, zone: str, instant: datetime, microseconds: int
) -> None:
    schedule = parsed(pattern, zone)
    tick = schedule.next_after(instant)
    assume(tick is not None)
    assert tick is not None
    assert schedule.next_after(tick - timedelta(microseconds=microseconds)) == tick


cron_like = st.text(alphabet="0123456789*/-,?LW#@ SUNMOJAKx\t", max_size=30)
cron_words = st.sampled_from(("*", "?", "0", "1", "7", "59", "2099", "SUN", "JAN", "L", "1-5", "*/2", "5/0", "@daily"))
assembled = st.lists(cron_words, min_size=5, max_size=8).map(" ".join)


@unhurried
@given(st.one_of(st.text(), cron_like, assembled), st.one_of(st.just("UTC"), st.text(max_size=12)))
@example("0 0 0 * * *", "\ud800")
@example("9" * 5000 + " * * * * *", "UTC")
def test_a_text_is_a_schedule_or_a_cron_error(expression: str, zone: str) -> None:
    try:
        schedule = CronSchedule.parse(expression, zone)
    except CronError:
        return
    assert schedule.next_after(datetime(1969, 1, 1, tzinfo=UTC)) is not None
