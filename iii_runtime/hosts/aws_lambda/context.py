"""What Lambda tells of the present invocation."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

OUTCOME_TIME = timedelta(seconds=2)
"""Kept from every function, so that what became of it is stored before Lambda ends the invocation."""


class LambdaContext(Protocol):
    """The context object of a Lambda invocation, as far as it is used."""

    @property
    def aws_request_id(self) -> str:
        """Identity of the invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Return how long the invocation may go on."""


def remaining(context: LambdaContext) -> timedelta:
    """Return how long the invocation may go on."""
    return timedelta(milliseconds=context.get_remaining_time_in_millis())


def time_for_functions(context: LambdaContext) -> timedelta:
    """Return how long a function that starts now may run, so that its outcome can be stored; at least nothing."""
    return max(remaining(context) - OUTCOME_TIME, timedelta(0))
