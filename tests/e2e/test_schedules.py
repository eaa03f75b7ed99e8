"""Schedules of a deployed stage: a minute by a rule of EventBridge, less than a minute by the runtime's tick.

They run before the tests that load the stage, in which a tick may be skipped because the one before it still runs.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

from tests.e2e.deployed import Deployed
from tests.patience import eventually

_TWO_MINUTES_S = 200.0


def test_a_function_fires_every_minute_and_another_every_20_seconds_each_time_once(deployed: Deployed) -> None:
    minutes = eventually(lambda: ticks(deployed, "minute", 2), "two ticks of a minute", within_s=_TWO_MINUTES_S)
    seconds = eventually(lambda: ticks(deployed, "20-seconds", 4), "four ticks of 20 s", within_s=_TWO_MINUTES_S)
    assert {at.second for at in minutes} == {0}
    assert gaps(minutes) == {timedelta(minutes=1)}
    assert gaps(seconds) == {timedelta(seconds=20)}


def ticks(deployed: Deployed, key: str, number: int) -> list[datetime] | None:
    """Return the times for which a function was started, oldest first, once there are that many."""
    found = sorted(datetime.fromisoformat(entry) for entry in deployed.entries("ticks", key))
    return found if len(found) >= number else None


def gaps(times: list[datetime]) -> set[timedelta]:
    """Return what lies between neighbours."""
    return {later - earlier for earlier, later in pairwise(times)}
