"""What can be done with a receive of SQS: end it, or say when the message is visible again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from botocore.exceptions import ClientError

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import classify, with_retries
from iii_runtime.core.delivery import visibility_s
from iii_runtime.core.errors import StoreError
from iii_runtime.ports.clock import Clock

T = TypeVar("T")

_TRIES = 3
_LOST = frozenset({"MessageNotInflight", "ReceiptHandleIsInvalid", "InvalidParameterValue"})
"""How SQS says that a handle is of no use any more. The last one is what an expired handle of a FIFO queue gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receive:
    """One receive of a message, as it travels in `Delivery.handle`.

    Attributes:
        raw: SQS's receipt handle.
        received_ms: When it was received, Unix milliseconds.
        first_ms: When it was first enqueued.
    """

    raw: str
    received_ms: int
    first_ms: int

    def encode(self) -> str:
        """Return it as one text."""
        return f"{self.received_ms}.{self.first_ms}.{self.raw}"

    @staticmethod
    def decode(handle: str) -> Receive:
        """Parse that text."""
        received_ms, first_ms, raw = handle.split(".", 2)
        return Receive(raw=raw, received_ms=int(received_ms), first_ms=int(first_ms))


class Receipts:
    """Ends receives.

    Attributes:
        settled: Handles of the messages to remove, if that is somebody else's task.
    """

    def __init__(self, clients: Clients, clock: Clock, *, deletes: bool) -> None:
        """Delete messages that are settled, or only note them."""
        self.settled: set[str] = set()
        self._clients = clients
        self._clock = clock
        self._deletes = deletes

    async def settle(self, url: str, raw: str) -> bool:
        """Remove the message for good, or note that; False if SQS does not take the handle any more.

        A standard queue may take an older handle, and not remove the message.

        Raises:
            StoreError: See `failures`.
        """
        if not self._deletes:
            self.settled.add(raw)
            return True
        return await self._ask(url, lambda: self._clients.sqs.delete_message(QueueUrl=url, ReceiptHandle=raw))

    async def hide(self, url: str, raw: str, delay: timedelta, received_ms: int) -> bool:
        """Let the message be visible again after `delay`, in whole seconds; False if the receive has ended.

        Cut to what SQS grants: 12 hours from the receive.

        Raises:
            StoreError: See `failures`; after 3 tries. The message is visible when the queue's own time-out ends.
        """
        age = timedelta(milliseconds=max(self._clock.now_ms() - received_ms, 0))
        seconds = visibility_s(delay, age)
        return await self._ask(
            url,
            lambda: self._clients.sqs.change_message_visibility(
                QueueUrl=url, ReceiptHandle=raw, VisibilityTimeout=seconds
            ),
        )

    async def _ask(self, url: str, operation: Callable[[], T]) -> bool:
        try:
            await with_retries(operation, clock=self._clock, where=f"queue {url.rsplit('/', 1)[-1]}", attempts=_TRIES)
        except StoreError as error:
            cause = error.__cause__
            if isinstance(cause, ClientError) and classify(cause).aws_code in _LOST:
                return False
            raise
        return True
