"""Cron expressions: their grammar, their ticks, and the identities of jobs and ticks."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone

import pytest

from iii_runtime.core.cron import CronError, CronJob, CronSchedule, cron_payload, job_id
from iii_runtime.core.errors import IiiError

NEW_YEAR_2026 = datetime(2026, 1, 1, tzinfo=UTC)  # A Thursday.


def ticks(expression: str, timezone: str = "UTC", *, after: str = "2026-01-01T00:00:00Z", count: int = 3) -> list[str]:
    """The first ticks of an expression after an instant, or all if there are fewer."""
    schedule = CronSchedule.parse(expression, timezone)
    found: list[str] = []
    instant: datetime | None = datetime.fromisoformat(after)
    while instant is not None and len(found) < count:
        instant = schedule.next_after(instant)
        if instant is not None:
            assert instant.utcoffset() == timedelta(0)
            found.append(instant.isoformat().replace("+00:00", "Z"))
    return found


def refusal(expression: str, timezone: str = "UTC", *, after: datetime | None = None) -> str:
    with pytest.raises(CronError) as caught:
        CronSchedule.parse(expression, timezone, after=after)
    assert caught.value.code == "cron_invalid"
    return caught.value.message


class TestTicks:
    def test_the_first_field_is_the_second(self) -> None:
        assert ticks("*/20 * * * * *") == ["2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z", "2026-01-01T00:01:00Z"]

    def test_a_tick_is_strictly_after_the_instant(self) -> None:
        assert ticks("0 0 0 * * *", count=1) == ["2026-01-02T00:00:00Z"]
        assert ticks("0 0 0 * * *", after="2025-12-31T23:59:59.999999Z", count=1) == ["2026-01-01T00:00:00Z"]
        assert ticks("* * * * * *", after="2026-01-01T00:00:00.000001Z", count=1) == ["2026-01-01T00:00:01Z"]

    def test_an_instant_of_another_offset_means_the_same_instant(self) -> None:
        instant = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
        assert CronSchedule.parse("0 0 0 * * *").next_after(instant) == NEW_YEAR_2026 + timedelta(days=1)

    def test_a_naive_instant_is_refused(self) -> None:
        with pytest.raises(ValueError, match="aware"):
            CronSchedule.parse("0 0 0 * * *").next_after(datetime(2026, 1, 1))  # noqa: DTZ001

    @pytest.mark.parametrize(
        ("weekday", "date"),
        [
            ("1", "2026-01-04"),
            ("SUN", "2026-01-04"),
            ("2", "2026-01-05"),
            ("mon", "2026-01-05"),
            ("Monday", "2026-01-05"),
            ("3", "2026-01-06"),
            ("4", "2026-01-07"),
            ("5", "2026-01-08"),
            ("6", "2026-01-02"),
            ("7", "2026-01-03"),
            ("SAT", "2026-01-03"),
        ],
    )
    def test_weekdays_count_from_sunday_as_1_to_saturday_as_7(self, weekday: str, date: str) -> None:
        assert ticks(f"0 0 0 ? * {weekday}", count=1) == [f"{date}T00:00:00Z"]

    def test_a_weekday_range_has_both_its_ends(self) -> None:
        by_name = ticks("0 0 0 * * MON-FRI", count=10)
        assert by_name == ticks("0 0 0 * * 2-6", count=10)
        assert {datetime.fromisoformat(tick).isoweekday() for tick in by_name} == {1, 2, 3, 4, 5}

    def test_both_day_fields_restricted_must_both_hold(self) -> None:
        assert ticks("0 0 0 13 * FRI") == ["2026-02-13T00:00:00Z", "2026-03-13T00:00:00Z", "2026-11-13T00:00:00Z"]

    def test_a_star_with_a_step_in_one_day_field_restricts_it(self) -> None:
        assert ticks("0 0 0 */2 * MON") == ["2026-01-05T00:00:00Z", "2026-01-19T00:00:00Z", "2026-02-09T00:00:00Z"]

    def test_a_question_mark_restricts_nothing(self) -> None:
        assert ticks("0 0 0 ? * ?", count=9) == ticks("0 0 0 * * *", count=9)

    def test_lists_ranges_and_steps_combine(self) -> None:
        fields = CronSchedule.parse("5,50/4 0-10/5,59 */6 1,30-31 JAN-mar,12 * 2026-2030/2").fields
        assert fields.seconds == (5, 50, 54, 58)
        assert fields.minutes == (0, 5, 10, 59)
        assert fields.hours == (0, 6, 12, 18)
        assert fields.days == (1, 30, 31)
        assert fields.months == (1, 2, 3, 12)
        assert fields.weekdays == (1, 2, 3, 4, 5, 6, 7)
        assert fields.years == (2026, 2028, 2030)

    def test_a_month_without_the_day_is_passed_over(self) -> None:
        assert ticks("0 0 0 31 * *") == ["2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z", "2026-05-31T00:00:00Z"]

    def test_february_29_fires_in_leap_years_alone(self) -> None:
        assert ticks("0 0 0 29 2 *") == ["2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z", "2036-02-29T00:00:00Z"]

    def test_ticks_decades_apart_are_found(self) -> None:
        assert ticks("0 0 0 29 2 MON") == ["2044-02-29T00:00:00Z", "2072-02-29T00:00:00Z"]
        assert ticks("0 0 0 29 2 WED 2096") == ["2096-02-29T00:00:00Z"]

    def test_after_the_last_year_there_is_no_tick(self) -> None:
        assert ticks("0 0 12 1 1,7 ? 2026") == ["2026-01-01T12:00:00Z", "2026-07-01T12:00:00Z"]

    def test_there_is_no_tick_after_2099(self) -> None:
        assert ticks("59 59 23 31 12 *", after="2098-12-31T23:59:59Z") == ["2099-12-31T23:59:59Z"]
        assert CronSchedule.parse("* * * * * *").next_after(datetime.max.replace(tzinfo=UTC)) is None

    def test_the_first_tick_is_in_1970(self) -> None:
        schedule = CronSchedule.parse("* * * * * *")
        assert schedule.next_after(datetime.min.replace(tzinfo=UTC)) == datetime(1970, 1, 1, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("macro", "expression"),
        [
            ("@yearly", "0 0 0 1 1 *"),
            ("@monthly", "0 0 0 1 * *"),
            ("@weekly", "0 0 0 * * SUN"),
            ("@Daily", "0 0 0 * * *"),
            ("@hourly", "0 0 * * * *"),
        ],
    )
    def test_a_macro_stands_for_its_expression(self, macro: str, expression: str) -> None:
        assert CronSchedule.parse(macro).fields == CronSchedule.parse(expression).fields


class TestTimeZones:
    def test_the_expression_is_local_time(self) -> None:
        assert ticks("0 0 9 * * *", "America/New_York", count=1) == ["2026-01-01T14:00:00Z"]

    def test_the_instant_follows_daylight_saving(self) -> None:
        assert ticks("0 0 9 * * *", "Europe/Berlin", after="2026-03-27T12:00:00Z") == [
            "2026-03-28T08:00:00Z",
            "2026-03-29T07:00:00Z",
            "2026-03-30T07:00:00Z",
        ]

    def test_a_skipped_local_time_does_not_fire_in_berlin(self) -> None:
        """02:30 does not exist on 29 March 2026."""
        assert ticks("0 30 2 * * *", "Europe/Berlin", after="2026-03-28T00:00:00Z") == [
            "2026-03-28T01:30:00Z",
            "2026-03-30T00:30:00Z",
            "2026-03-31T00:30:00Z",
        ]

    def test_a_repeated_local_time_fires_the_first_time_alone_in_new_york(self) -> None:
        """01:30 comes twice on 1 November 2026, first at 05:30 UTC."""
        assert ticks("0 30 1 * * *", "America/New_York", after="2026-10-31T12:00:00Z", count=2) == [
            "2026-11-01T05:30:00Z",
            "2026-11-02T06:30:00Z",
        ]

    def test_within_the_repeated_hour_no_tick_repeats(self) -> None:
        assert ticks("0 30 1 * * *", "America/New_York", after="2026-11-01T06:10:00Z", count=1) == [
            "2026-11-02T06:30:00Z"
        ]

    def test_a_half_hour_shift_skips_half_an_hour_in_lord_howe(self) -> None:
        """On 4 October 2026 the clocks go from 02:00 to 02:30."""
        assert ticks("0 15,45 2 * * *", "Australia/Lord_Howe", after="2026-10-03T12:00:00Z") == [
            "2026-10-03T15:45:00Z",
            "2026-10-04T15:15:00Z",
            "2026-10-04T15:45:00Z",
        ]

    def test_a_half_hour_shift_repeats_half_an_hour_in_lord_howe(self) -> None:
        """On 5 April 2026 the clocks go from 02:00 back to 01:30."""
        assert ticks("0 15,45 1 * * *", "Australia/Lord_Howe", after="2026-04-04T12:00:00Z") == [
            "2026-04-04T14:15:00Z",
            "2026-04-04T14:45:00Z",
            "2026-04-05T14:45:00Z",
        ]

    @pytest.mark.parametrize(
        ("last_tick", "next_tick"),
        [("2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z"), ("2026-10-25T00:59:59Z", "2026-10-25T02:00:00Z")],
    )
    def test_every_second_goes_on_right_after_a_shift_and_pauses_for_a_repeated_hour(
        self, last_tick: str, next_tick: str
    ) -> None:
        assert ticks("* * * * * *", "Europe/Berlin", after=last_tick, count=1) == [next_tick]

    def test_a_day_that_the_zone_skipped_does_not_fire(self) -> None:
        """Samoa crossed the date line and had no 30 December 2011."""
        assert ticks("0 0 12 30 12 *", "Pacific/Apia", after="2011-01-01T00:00:00Z", count=1) == [
            "2012-12-29T22:00:00Z"
        ]


class TestRefusals:
    @pytest.mark.parametrize(
        ("expression", "words"),
        [
            ("", ["found 0 fields", "expected 'second minute hour"]),
            ("0 9 * * *", ["found 5 fields", "seconds in front", "'0 0 9 * * *'"]),
            ("0 0 0 * * * * *", ["found 8 fields"]),
            ("60 * * * * *", ["second: found '60'", "0-59"]),
            ("0 60 * * * *", ["minute: found '60'", "0-59"]),
            ("0 0 24 * * *", ["hour: found '24'", "0-23"]),
            ("0 0 0 0 * *", ["day of month: found '0'", "1-31"]),
            ("0 0 0 32 * *", ["day of month: found '32'", "1-31"]),
            ("0 0 0 * 13 *", ["month: found '13'", "1-12 or JAN-DEC"]),
            ("0 0 0 * FOO *", ["month: found 'FOO'", "1-12 or JAN-DEC"]),
            ("0 0 0 * * 0", ["day of week: found '0'", "1 is Sunday"]),
            ("0 0 0 * * 8", ["day of week: found '8'", "1 is Sunday"]),
            ("0 0 0 * * JAN", ["day of week: found 'JAN'", "SUN-SAT"]),
            ("0 0 0 * * * 1969", ["year: found '1969'", "1970-2099"]),
            ("0 0 0 * * * 2100", ["year: found '2100'", "1970-2099"]),
            ("-1 * * * * *", ["second: found '-1'"]),
            ("1.5 * * * * *", ["second: found '1.5'"]),
            ("٣ * * * * *", ["second: found '٣'"]),
            ("1,,2 * * * * *", ["second: found ''"]),
            ("1-2-3 * * * * *", ["second: found '1-2-3'"]),
            ("30-10 * * * * *", ["second: found '30-10'", "upwards"]),
            ("0 0 0 * * FRI-MON", ["day of week: found 'FRI-MON'", "upwards", "two ranges"]),
            ("*/0 * * * * *", ["second: found '*/0'", "a step from 1 to 60"]),
            ("0 */90 * * * *", ["minute: found '*/90'", "a step from 1 to 60"]),
            ("0 5/ * * * *", ["minute: found '5/'", "a step"]),
            ("? * * * * *", ["second: found '?'", "only as day of month or day of week"]),
            ("0 0 0 ?,1 * *", ["day of month: found '?'", "1-31"]),
            ("0 0 0 L * ?", ["day of month: found 'L'", "'L', 'W' and '#' are not supported"]),
            ("0 0 0 15W * ?", ["day of month: found '15W'", "not supported"]),
            ("0 0 0 ? * FRI#2", ["day of week: found 'FRI#2'", "not supported"]),
            ("@reboot", ["unknown macro", "@daily"]),
            ("@daily 5", ["unknown macro", "@daily"]),
        ],
    )
    def test_the_error_names_the_field_what_was_found_and_what_is_expected(
        self, expression: str, words: list[str]
    ) -> None:
        message = refusal(expression)
        assert repr(expression) in message
        for word in words:
            assert word in message

    @pytest.mark.parametrize("expression", ["0 0 0 30 2 *", "0 0 0 31 4,6,9,11 *", "0 0 0 29 2 MON 2096"])
    def test_a_date_that_does_not_exist_can_never_fire(self, expression: str) -> None:
        assert "can never fire" in refusal(expression)

    def test_a_local_time_that_is_always_skipped_can_never_fire(self) -> None:
        assert "can never fire" in refusal("0 30 2 28 3 * 2027", "Europe/Berlin")
        always_the_shift = "0 30 2 25-31 3 SUN"
        assert "can never fire" in refusal(always_the_shift, "Europe/Berlin", after=NEW_YEAR_2026)

    def test_a_schedule_without_a_tick_after_the_given_instant_can_never_fire(self) -> None:
        assert "can never fire" in refusal("0 0 0 * * * 2025", after=NEW_YEAR_2026)
        assert CronSchedule.parse("0 0 0 * * * 2025").next_after(NEW_YEAR_2026) is None

    @pytest.mark.parametrize("timezone", ["", "Mars/Base", "America", "../UTC", "\0", "x" * 5000, "é"])
    def test_an_unknown_time_zone_is_refused(self, timezone: str) -> None:
        message = refusal("0 0 0 * * *", timezone)
        assert repr(timezone) in message
        assert "IANA" in message

    def test_the_error_is_one_of_the_runtime(self) -> None:
        assert issubclass(CronError, IiiError)


class TestValues:
    def test_a_schedule_keeps_its_expression_single_spaced_and_its_time_zone(self) -> None:
        schedule = CronSchedule.parse("  0 0  9 * *\tmon ", "Europe/Berlin")
        assert (schedule.expression, schedule.timezone) == ("0 0 9 * * mon", "Europe/Berlin")

    def test_a_schedule_is_a_frozen_value(self) -> None:
        schedule = CronSchedule.parse("0 0 9 * * *")
        assert schedule == CronSchedule.parse("0 0 9 * * *")
        assert hash(schedule) == hash(CronSchedule.parse("0 0 9 * * *"))
        with pytest.raises(FrozenInstanceError):
            schedule.timezone = "Europe/Berlin"  # type: ignore[misc]

    def test_a_job_is_identified_by_what_fires_and_not_by_its_trigger(self) -> None:
        schedule = CronSchedule.parse("0 0 9 * * *")
        job = CronJob(trigger_id="any", function_id="orders::clean", schedule=schedule)
        assert job.job_id == job_id("orders::clean", schedule) == "orders::clean|0 0 9 * * *|UTC"
        assert job.overlap is False
        berlin = CronSchedule.parse("0 0 9 * * *", "Europe/Berlin")
        assert job_id("orders::clean", berlin) == "orders::clean|0 0 9 * * *|Europe/Berlin"

    def test_the_payload_has_the_nominal_and_the_actual_time(self) -> None:
        actual = NEW_YEAR_2026 + timedelta(milliseconds=1500)
        assert cron_payload("a-job", NEW_YEAR_2026, actual) == {
            "trigger": "cron",
            "job_id": "a-job",
            "scheduled_time": "2026-01-01T00:00:00Z",
            "actual_time": "2026-01-01T00:00:01.500000Z",
        }

    def test_reading_an_ordinary_expression_does_not_load_croniter(self) -> None:
        code = (
            "import sys; from iii_runtime.core.cron import CronSchedule; "
            "CronSchedule.parse('0 0 9 1 * *'); CronSchedule.parse('0 0 9 * * MON-FRI'); "
            "sys.exit('croniter' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
