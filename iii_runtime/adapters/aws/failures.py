"""What the services of AWS say when they refuse, sorted once: worth repeating, in conflict, or final.

| kind | code | what happened |
|---|---|---|
| `retryable` | `store_throttled` | the service asks to slow down |
| `retryable` | `store_unavailable` | an error of the service, a lost connection, a time-out |
| `conflict` | `store_conflict` | a condition did not hold, or another transaction was at the same item |
| `permanent` | `store_throttled` | it is for a minute what the service is still at |
| `permanent` | `store_denied` | the action is not allowed, or the credentials have expired |
| `permanent` | `store_missing` | there is no table, bucket, queue, object of that name |
| `permanent` | `store_item_too_large` | a limit of the service |
| `permanent` | `store_unavailable` | the request is wrong in another way |

A cancelled transaction is sorted by the reasons of its parts: a final one counts most, then throttling, then a
condition that did not hold, then a conflict.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ResponseStreamingError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from botocore.exceptions import ConnectionError as BotoConnectionError

from iii_runtime.adapters.aws.error_codes import TRANSACTION_CONFLICTS, FailureKind, sorted_code
from iii_runtime.core.errors import StoreError
from iii_runtime.core.frozen import frozen
from iii_runtime.ports.clock import Clock

T = TypeVar("T")

ATTEMPTS = 6
PATIENCE = timedelta(seconds=5)
"""How long after the first attempt another one may begin: with the time-outs of a request, all end within 10 s."""

FIRST_PAUSE = timedelta(milliseconds=50)
LONGEST_PAUSE = timedelta(seconds=1)


@frozen(kw_only=True)
class Failure:
    """A refused request.

    Attributes:
        kind: What to do about it.
        code: The code of the `StoreError` it becomes.
        message: Operation, the service's own code and text.
        aws_code: The service's own code; of a cancelled transaction, that of the reason that counts.
    """

    kind: FailureKind
    code: str
    message: str
    aws_code: str

    @property
    def is_transient(self) -> bool:
        """Whether the same request may be accepted a moment later."""
        return self.kind == "retryable" or self.aws_code in TRANSACTION_CONFLICTS

    @property
    def is_uncertain(self) -> bool:
        """Whether the request may have been carried out all the same."""
        return self.kind == "retryable" and self.code == "store_unavailable"


class ServiceError(StoreError):
    """A service did not do what a store asked of it.

    Attributes:
        failure: What it said last.
        may_be_done: Whether the request may have been carried out all the same, this time or an earlier one.
    """

    def __init__(self, failure: Failure, where: str, *, may_be_done: bool = False) -> None:
        """Tell of `failure` at `where`, such as `table orders-dev`."""
        super().__init__(f"{where}: {failure.message}: {_REMEDIES[failure.code]}", code=failure.code)
        self.failure = failure
        self.may_be_done = may_be_done


def classify(error: BotoCoreError | ClientError) -> Failure:
    """Return what kind of failure a refused or lost request is."""
    if isinstance(error, ClientError):
        return _of_response(error)
    name = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return Failure(kind="permanent", code="store_denied", message=str(error), aws_code=name)
    kind: FailureKind = "retryable" if isinstance(error, _LOST) else "permanent"
    return Failure(kind=kind, code="store_unavailable", message=str(error), aws_code=name)


async def with_retries(
    operation: Callable[[], T],
    *,
    clock: Clock,
    where: str,
    attempts: int = ATTEMPTS,
    patience: timedelta = PATIENCE,
    jitter: Callable[[], float] = random.random,
) -> T:
    """Return the result of a request, sent again while its failure is transient.

    Before each repetition it waits, see `pause`. A request whose reply was lost is repeated too, so it must be one that
    may arrive twice.

    Args:
        operation: Sends the request; blocks.
        clock: What the pauses are waited on.
        where: What is asked, for the message of an error, such as `table orders-dev`.
        attempts: How often it is sent at most.
        patience: How long after the first time it may be sent again; a request that hangs uses it up.
        jitter: A number from 0 to 1 for each pause.

    Raises:
        ClientError: `conflict`, because a condition did not hold: that is an answer, and the caller's to read.
        ServiceError: A `StoreError`: `store_throttled`, `store_missing`, `store_denied`, `store_conflict` (of other
            transactions), `store_item_too_large`, `store_unavailable`.
    """
    attempt, may_be_done, ends = 1, False, clock.now() + patience
    while True:
        try:
            return operation()
        except (BotoCoreError, ClientError) as error:
            failure = classify(error)
            if failure.kind == "conflict" and not failure.is_transient:
                raise
            may_be_done = may_be_done or failure.is_uncertain
            if not failure.is_transient or attempt >= attempts or clock.now() >= ends:
                raise ServiceError(failure, where, may_be_done=may_be_done) from error
        await pause(clock, attempt, jitter)
        attempt += 1


async def pause(clock: Clock, attempt: int, jitter: Callable[[], float] = random.random) -> None:
    """Wait before a repetition: a random part of a span that doubles from `FIRST_PAUSE` to `LONGEST_PAUSE`.

    Args:
        clock: What is waited on.
        attempt: How many tries have failed, from 1.
        jitter: A number from 0 to 1.
    """
    span = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (attempt - 1))
    await clock.sleep_until(clock.now() + span * jitter())


def _of_response(error: ClientError) -> Failure:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    told = error.response.get("Error", {})
    code, text = _short(told.get("Code", "")), told.get("Message", "")
    if code == "TransactionCanceledException":
        reasons: Sequence[Mapping[str, object]] = error.response.get("CancellationReasons", [])
        code, text = _reason_that_counts(reasons, text)
    kind, store_code = sorted_code(code, text, status)
    return Failure(kind=kind, code=store_code, message=f"{error.operation_name}: {code}: {text}", aws_code=code)


def _reason_that_counts(reasons: Sequence[Mapping[str, object]], text: str) -> tuple[str, str]:
    found = [
        (_short(str(reason["Code"])), str(reason.get("Message") or text))
        for reason in reasons
        if reason.get("Code") not in {None, "None"}
    ]
    return min(found, key=_weight, default=("TransactionCanceledException", text))


def _weight(reason: tuple[str, str]) -> int:
    kind, _ = sorted_code(*reason, 0)
    if kind == "conflict":
        return 3 if reason[0] in TRANSACTION_CONFLICTS else 2
    return 0 if kind == "permanent" else 1


def _short(code: str) -> str:
    """Return a code without the namespace that SQS puts before it."""
    return code.rsplit(".", 1)[-1]


_LOST = (BotoConnectionError, HTTPClientError, IncompleteReadError, ResponseStreamingError)
_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)

_REMEDIES = {
    "store_throttled": "the service asked to slow down. Try again later; raise the quota or the table's limits if it "
    "happens often.",
    "store_conflict": "others write the same item. Try again; spread the writes over more items if it happens often.",
    "store_denied": "the credentials have expired or do not allow it. Sign in again, or grant the action to the role.",
    "store_missing": "check the stage and the region, and that the stage is deployed.",
    "store_item_too_large": "the service does not take that much in one piece. Store the data elsewhere and pass a "
    "reference.",
    "store_unavailable": "try again; if it goes on, look at the state of the service and at the network.",
}
