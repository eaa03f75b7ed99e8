"""A payload outlives every letter that names it: what the bucket, the queues and the table keep, added up."""

from __future__ import annotations

from datetime import timedelta

from iii_runtime.adapters.aws.dead_letter_store import RENEWED_AFTER
from iii_runtime.adapters.aws.message_item import KEPT
from iii_runtime.cdk.queues import RETENTION
from iii_runtime.cdk.storage import PAYLOAD_DAYS
from iii_runtime.core.delivery import LONGEST_HIDE

PAYLOAD = timedelta(days=PAYLOAD_DAYS)
WAITING = timedelta(days=RETENTION.to_days())
"""On a queue, until the last receive that SQS grants."""

REMOVAL = timedelta(days=3)
"""How long DynamoDB may take to remove an item whose time is over; it says: within a few days."""

LIFE = WAITING + LONGEST_HIDE
"""From the send of a message to its death, at most."""

LETTER = KEPT + REMOVAL
"""From the death of a message to when its letter is listed no more."""


def test_a_payload_outlives_the_letter_of_a_message_that_was_never_redriven() -> None:
    assert LIFE + LETTER <= PAYLOAD


def test_a_payload_that_a_redrive_does_not_store_again_outlives_the_next_letter() -> None:
    assert RENEWED_AFTER + LIFE + LETTER <= PAYLOAD


def test_a_payload_that_is_a_day_older_would_not() -> None:
    assert RENEWED_AFTER + timedelta(days=1) + LIFE + LETTER > PAYLOAD


def test_a_message_that_the_console_redrives_runs_with_its_payload_but_its_next_letter_may_outlive_it() -> None:
    copy_on_the_dead_letter_queue = WAITING
    assert LIFE + copy_on_the_dead_letter_queue + LIFE <= PAYLOAD
    assert LIFE + copy_on_the_dead_letter_queue + LIFE + LETTER > PAYLOAD
