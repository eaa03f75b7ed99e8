"""The timer of the process, which ends what the main thread does."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

AGAIN = timedelta(milliseconds=500)
"""It rings again after so long, should what it ends catch what ends it."""

_LEAST_S = 0.001


class TimeUp(BaseException):
    """Raised inside a body whose time is up."""


class Alarm:
    """Raises `TimeUp` on the main thread when a time is up, and every half second from then on.

    Args:
        is_spared: Asked each time: whether what runs ends by itself and is to be left alone.

    Attributes:
        has_rung: Whether it has raised.
    """

    def __init__(self, is_spared: Callable[[], bool] = lambda: False) -> None:
        self.has_rung = False
        self._is_set = False
        self._is_spared = is_spared

    def end_after(self, time: timedelta, call: Callable[[], T]) -> T | None:
        """Call something and end it when its time is up; returns its result, None if the end came from here.

        On the main thread alone. Timer and signal are given back.

        Raises:
            BaseException: What it raises.
        """
        before = signal.signal(signal.SIGALRM, self._ring)
        result: T | None = None
        try:
            try:
                self._is_set = True
                signal.setitimer(signal.ITIMER_REAL, max(time.total_seconds(), _LEAST_S), AGAIN.total_seconds())
                result = call()
            finally:
                self._is_set = False
        except TimeUp:  # it rang outside of what catches it
            self._is_set = False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
        return result

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        if self._is_set and not self._is_spared():
            self.has_rung = True
            raise TimeUp
