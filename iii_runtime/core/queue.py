"""What a queue is, and the decisions about its messages: refusals, back-off, when an attempt is the last."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import timedelta
from typing import Literal

from iii_runtime.core.errors import EnqueueError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.payload import Json, PayloadError, check_name, encode_json

DEFAULT_QUEUE = "default"
MAX_DELAY_SECONDS = 900
MAX_HOPS = 100
MAX_GROUP_BYTES = 1024
"""Largest value of a group field, as JSON text: it is kept beside the payload, and once more in a letter."""
MAX_BACKOFF = timedelta(hours=12)
DEDUPE_WINDOW = timedelta(minutes=5)
LEASE = timedelta(seconds=30)
SINGLE_GROUP = "1"
"""The one group of a queue with `concurrency: 1`."""

QUEUE_NAME_RULE = "a queue name of 1 to 80 letters, digits, '.', '_' or '-' that starts with a letter or digit"

_QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_MAX_EXPONENT = 30
_RECEIVES_BEYOND_ATTEMPTS = 3
_RECEIVES_TO_BE_PUT_OFF = 30
_MIN_RECEIVES = 5


@frozen(kw_only=True)
class QueueSpec:
    """A queue with every default applied.

    Attributes:
        name: Unique name; the queues of topic subscriptions are called `topic/<topic>/<function id>`.
        max_attempts: Attempts in total; after the last failed one the message is a dead letter.
        concurrency: Messages handled at the same time by one host.
        kind: `standard`, or `fifo` (in order within each group).
        group_field: Top-level payload member whose value is the group; FIFO only.
        backoff: Wait after the first failed attempt; doubled after each further one, at most 12 hours.
        topic: The topic this queue holds messages of, for the queue of a subscription.
        function_id: The only function of a subscription's queue.
        batch_size: Messages one invocation of its consumer is given; more than one on AWS only.
        is_shared: Whether it is served by the dispatcher and not by one function's own host; on AWS only.
        consumer: The function whose own host takes its messages, and passes on those for other functions; on AWS only,
            and None for the queue of a subscription, which has no message for another function.
    """

    name: str
    max_attempts: int = 3
    concurrency: int = 10
    kind: Literal["standard", "fifo"] = "standard"
    group_field: str | None = None
    backoff: timedelta = timedelta(milliseconds=1000)
    topic: str | None = None
    function_id: str | None = None
    batch_size: int = 1
    is_shared: bool = False
    consumer: str | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether messages wait for their predecessors: FIFO, or one at a time."""
        return self.kind == "fifo" or self.concurrency == 1

    @property
    def max_receives(self) -> int:
        """The receive after which any message of the queue is given up; where a broker counts, it does so there.

        - Batches grant the attempts of a whole batch: a message is received, and returned unrun, behind others that
          have used up the time, or behind one of its group that has failed.
        - 30 more are for messages that are put off because their function is busy, which uses up a receive each time.
          Only a host that passes messages on to other hosts can find a function busy: the dispatcher, and the consumer
          of a queue that takes messages for other functions.
        """
        if self.is_shared or self.consumer is not None:
            return self.max_attempts * self.batch_size + _RECEIVES_TO_BE_PUT_OFF
        return self._receives_to_run

    def receives_for(self, function_id: str) -> int:
        """Return the receive after which a message for a function is given up unrun: it killed its host each time.

        The consumer's own messages are never put off, so one that kills its host is found out after its attempts and a
        few receives more. A message for another function has `max_receives`, whether it is put off or kills that
        function's own host: both use up receives alone. So has every message of an ordered queue in
        batches: each is received, and returned unrun, whenever one before it in its group is put off.
        """
        is_own = function_id == self.consumer and not (self.is_ordered and self.batch_size > 1)
        return self._receives_to_run if is_own else self.max_receives

    @property
    def _receives_to_run(self) -> int:
        return max(self.max_attempts * self.batch_size + _RECEIVES_BEYOND_ATTEMPTS, _MIN_RECEIVES)


def is_queue_name(name: object) -> bool:
    """Return whether a queue of `queue_configs` can have this name, see `QUEUE_NAME_RULE`."""
    return isinstance(name, str) and _QUEUE_NAME.fullmatch(name) is not None


def backoff_after(attempt: int, base: timedelta) -> timedelta:
    """Return the wait after failed attempt `attempt`, from 1: `base * 2^(attempt-1)`, whole seconds up, <= 12 h."""
    base_ms = round(base / timedelta(milliseconds=1))
    seconds = -(-base_ms * 2 ** min(max(attempt - 1, 0), _MAX_EXPONENT) // 1000)
    return timedelta(seconds=min(seconds, round(MAX_BACKOFF.total_seconds())))


def release_delay(interruptions: int) -> timedelta:
    """Return how long a message waits at the start of a host that finds it held by one that died.

    Not at all the first time; then a second, doubled with each further interruption, at most 32. So one that kills
    its host leaves the others time between two deaths, and those that only ran beside it are not counted out with it.
    """
    return timedelta(seconds=2 ** min(interruptions - 2, 5)) if interruptions >= 2 else timedelta(0)


def check_delay(delay: object, queue: QueueSpec, function_id: str) -> int:
    """Return the delay in milliseconds.

    Raises:
        EnqueueError: `delay_invalid` or `delay_not_supported`.
    """
    if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay <= MAX_DELAY_SECONDS:
        raise EnqueueError(
            "delay_invalid",
            f"delay must be 0 to {MAX_DELAY_SECONDS} seconds, found {delay!r:.60}.",
            function_id,
        )
    if delay and queue.is_ordered:
        raise EnqueueError(
            "delay_not_supported",
            f"Queue '{queue.name}' keeps its messages in order ({_why_ordered(queue)}) and cannot delay one of them.",
            function_id,
        )
    return round(delay * 1000)


def check_dedupe_id(dedupe_id: object, function_id: str) -> str | None:
    """Return the id.

    Raises:
        EnqueueError: `dedupe_id_invalid`.
    """
    if dedupe_id is None:
        return None
    try:
        return check_name(dedupe_id, "dedupe_id")
    except PayloadError as error:
        raise EnqueueError("dedupe_id_invalid", error.message, function_id) from error


def check_hops(hops: int, queue: QueueSpec, function_id: str) -> int:
    """Return `hops`.

    Raises:
        EnqueueError: `too_many_hops`: functions that enqueue each other in a circle end here.
    """
    if hops > MAX_HOPS:
        raise EnqueueError(
            "too_many_hops",
            f"Queue '{queue.name}': this message would be hop {hops} of its chain, the limit is {MAX_HOPS}. "
            "Functions that enqueue each other without end stop here.",
            function_id,
        )
    return hops


def group_value(payload: Json, queue: QueueSpec, function_id: str) -> Json:
    """Return the value of the group field of a FIFO payload; None for other queues.

    Raises:
        EnqueueError: `group_field_missing` or `group_field_null`, with iii's words; `payload_too_large`.
    """
    if queue.kind != "fifo" or queue.group_field is None:
        return None
    field = queue.group_field
    if not isinstance(payload, dict) or field not in payload:
        raise EnqueueError(
            "group_field_missing",
            f"Queue '{queue.name}' requires field '{field}' in data",
            function_id,
        )
    if payload[field] is None:
        raise EnqueueError(
            "group_field_null",
            f"Queue '{queue.name}': field '{field}' must not be null",
            function_id,
        )
    size = len(encode_json(payload[field]))
    if size > MAX_GROUP_BYTES:
        raise EnqueueError(
            "payload_too_large",
            f"Queue '{queue.name}': field '{field}' is {size:,} bytes as JSON; a group may have {MAX_GROUP_BYTES:,}.",
            function_id,
        )
    return payload[field]


def group_key(value: Json, queue: QueueSpec) -> str | None:
    """Return the key of the FIFO group a message belongs to; None on a queue that keeps no order."""
    if queue.concurrency == 1:
        return SINGLE_GROUP
    if queue.kind != "fifo":
        return None
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))  # the order of members makes no other group
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


def _why_ordered(queue: QueueSpec) -> str:
    return "type: fifo" if queue.kind == "fifo" else "concurrency: 1"
