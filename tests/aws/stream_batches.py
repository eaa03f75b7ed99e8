"""How Lambda goes on with the records of a stream that a function could not handle: in halves, again, or not at all.

The rules of the event source mapping of a DynamoDB stream, for one shard:

- A batch is handled to its end before the next one begins, and nothing is added to one that has been tried.
- A failure as a whole cuts it in two, each of which is tried by itself; a cut is no retry. What cannot be cut is tried
  again, as often as `max_retries` says.
- Where the answer names the records that failed, everything before the first of them is done, and the rest is tried
  again: at the very start that is a retry, further on it is a cut.
- A record is given up once it is older than `max_age_ms`, by itself, whether or not it was tried; a batch once its
  retries are used up. Whoever asks is told of each batch that was given up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Record: TypeAlias = Mapping[str, Any]
Condition: TypeAlias = Literal["RecordAgeExceeded", "RetryAttemptsExhausted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """The settings of a mapping.

    Attributes:
        batch_size: Records of an invocation at most.
        bisects: `BisectBatchOnFunctionError`.
        max_retries: `MaximumRetryAttempts`; None for no limit.
        max_age_ms: `MaximumRecordAgeInSeconds`, in milliseconds; None for no limit.
    """

    batch_size: int = 100
    bisects: bool = True
    max_retries: int | None = None
    max_age_ms: int | None = 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Records that are handed over together.

    Attributes:
        records: The records, oldest first.
        tries: Invocations that got all of them.
        retries: Those of them that count against `max_retries`, and the next one with them.
    """

    records: Sequence[Record]
    tries: int = 0
    retries: int = 0

    @property
    def numbers(self) -> list[str]:
        """The sequence numbers."""
        return [str(record["dynamodb"]["SequenceNumber"]) for record in self.records]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """Records that were given up together."""

    batch: Batch
    condition: Condition


class StreamBatches:
    """The records of a shard that wait, in batches.

    Args:
        rules: The settings of the mapping.
    """

    def __init__(self, rules: StreamRules) -> None:
        self._rules = rules
        self._waiting: deque[Batch] = deque()

    def add(self, records: Sequence[Record]) -> None:
        """Take in what was read."""
        size = self._rules.batch_size
        left = list(records)
        if left and self._waiting and self._waiting[-1].tries == 0:
            last = self._waiting.pop()
            left = [*last.records, *left]
        self._waiting.extend(Batch(records=left[start : start + size]) for start in range(0, len(left), size))

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def begin(self) -> Batch:
        """Return the batch whose turn it is; it counts as tried, and stays the first until its outcome is told."""
        head = self._waiting.popleft()
        tried = Batch(records=head.records, tries=head.tries + 1, retries=head.retries)
        self._waiting.appendleft(tried)
        return tried

    def succeeded(self) -> None:
        """Note that the first batch is done."""
        self._waiting.popleft()

    def failed(self, now_ms: int) -> list[GivenUp]:
        """Note that the first batch failed as a whole; return what is given up."""
        head = self._waiting[0]
        if not self._rules.bisects or len(head.records) == 1:
            return self._retry(now_ms)
        middle = len(head.records) // 2
        self._waiting.popleft()
        self._waiting.extendleft(
            Batch(records=half, tries=head.tries, retries=head.retries)
            for half in (head.records[middle:], head.records[:middle])
        )
        return self.expired(now_ms)

    def failed_from(self, place: int, now_ms: int) -> list[GivenUp]:
        """Note that the first batch is done up to a place and failed there; return what is given up."""
        if place == 0:
            return self._retry(now_ms)
        head = self._waiting.popleft()
        self._waiting.appendleft(Batch(records=head.records[place:], tries=head.tries))
        return self.expired(now_ms)

    def expired(self, now_ms: int) -> list[GivenUp]:
        """Give up every record that is too old, and only those."""
        given_up: list[GivenUp] = []
        while self._waiting:
            head = self._waiting.popleft()
            old = sum(self._is_old(record, now_ms) for record in head.records)
            if old:
                gone = Batch(records=head.records[:old], tries=head.tries)
                given_up.append(GivenUp(batch=gone, condition="RecordAgeExceeded"))
            if old < len(head.records):
                left = Batch(records=head.records[old:], tries=head.tries, retries=head.retries)
                self._waiting.appendleft(left if old else head)
                break
        return given_up

    def _retry(self, now_ms: int) -> list[GivenUp]:
        head = self._waiting.popleft()
        most = self._rules.max_retries
        if most is not None and head.retries >= most:
            return [GivenUp(batch=head, condition="RetryAttemptsExhausted"), *self.expired(now_ms)]
        self._waiting.appendleft(Batch(records=head.records, tries=head.tries, retries=head.retries + 1))
        return self.expired(now_ms)

    def _is_old(self, record: Record, now_ms: int) -> bool:
        most = self._rules.max_age_ms
        return most is not None and now_ms - created_ms(record) > most


def created_ms(record: Record) -> int:
    """Return when a record was written, Unix milliseconds."""
    seconds: float = record["dynamodb"]["ApproximateCreationDateTime"]
    return round(seconds * 1000)
