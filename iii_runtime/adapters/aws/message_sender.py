"""Sending to SQS queues: in parts, each of which may arrive more than once."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

from iii_runtime.adapters.aws.batches import in_batches
from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import with_retries
from iii_runtime.core.errors import StoreError
from iii_runtime.ports.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import BatchResultErrorEntryTypeDef, SendMessageBatchRequestEntryTypeDef

MAX_ENTRIES = 10
MAX_BATCH_BYTES = 1024 * 1024
REPETITIONS = 3
"""How often the entries that SQS refused through no fault of theirs are sent again."""

_FIRST_PAUSE = timedelta(milliseconds=100)
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """A message for SQS.

    Attributes:
        body: Its body.
        delay_s: How long it stays invisible; 0 for a FIFO queue.
        group: Message group of a FIFO queue.
        deduplication_id: What makes a repeated send to a FIFO queue the same message.
    """

    body: str
    delay_s: int = 0
    group: str | None = None
    deduplication_id: str | None = None


class MessageSender:
    """Sends messages, again with the same bodies if the outcome is unknown.

    A FIFO queue swallows the repetition; from a standard queue the message then comes twice, with one receipt.
    """

    def __init__(self, clients: Clients, clock: Clock, *, jitter: Callable[[], float] = random.random) -> None:
        self._clients = clients
        self._clock = clock
        self._jitter = jitter

    async def send(self, url: str, posts: Sequence[Post]) -> None:
        """Send messages to the queue at `url`, in order within each group.

        Raises:
            StoreError: See `failures`. Those before the refused ones were sent, and of these any may have been.
        """
        for part in parts(posts):
            await self.send_part(url, part)

    async def send_part(self, url: str, part: Sequence[Post]) -> None:
        """Send what `parts` has put together: one request, unless it is refused in part.

        Raises:
            StoreError: See `failures`. Any of the messages may have been sent.
        """
        try:
            if len(part) == 1:
                await self._send_one(url, part[0])
            else:
                await self._send_batch(url, part)
        except StoreError as error:
            message = f"{error.message} The message may have been accepted all the same."
            raise StoreError(message, code=error.code) from error

    async def _send_one(self, url: str, post: Post) -> None:
        await with_retries(
            lambda: self._clients.sqs.send_message(QueueUrl=url, **_members(post)),
            clock=self._clock,
            where=_place(url),
            jitter=self._jitter,
        )

    async def _send_batch(self, url: str, part: Sequence[Post]) -> None:
        entries = [_entry(str(number), post) for number, post in enumerate(part)]
        for repetition in range(REPETITIONS + 1):
            failed = await self._request(url, entries)
            if not failed:
                return
            blamed = next((entry for entry in failed if entry["SenderFault"]), None)
            if blamed is not None or repetition == REPETITIONS:
                raise _refused(url, blamed or failed[0], len(failed), len(part))
            numbers = {entry["Id"] for entry in failed}
            entries = [entry for entry in entries if entry["Id"] in numbers]
            pause = _FIRST_PAUSE * 2**repetition * self._jitter()
            await self._clock.sleep_until(self._clock.now() + pause)

    async def _request(
        self, url: str, entries: list[SendMessageBatchRequestEntryTypeDef]
    ) -> list[BatchResultErrorEntryTypeDef]:
        answer = await with_retries(
            lambda: self._clients.sqs.send_message_batch(QueueUrl=url, Entries=entries),
            clock=self._clock,
            where=_place(url),
            jitter=self._jitter,
        )
        return answer.get("Failed", [])


def parts(posts: Sequence[Post]) -> Iterator[list[Post]]:
    """Divide messages into requests, in order: at most 10 and 1 MiB in one, and at most one message of each group.

    SQS may accept the second message of a request and refuse the first; so two of one group never share one.
    """
    return in_batches(
        ((post, len(post.body.encode("utf-8"))) for post in posts),
        most=MAX_ENTRIES,
        most_bytes=MAX_BATCH_BYTES,
        may_join=lambda part, post: post.group is None or all(post.group != other.group for other in part),
    )


def deduplication_id(receipt: str, *rest: object) -> str:
    """Return an id made of a receipt and what else tells this send from others of the receipt."""
    return ".".join([sqs_word(receipt), *map(str, rest)])


def sqs_word(name: str) -> str:
    """Return `name` if SQS takes it as an id of a group or message, else a hash of it."""
    return name if _PLAIN.fullmatch(name) else sha256(name.encode("utf-8")).hexdigest()[:32]


def _entry(number: str, post: Post) -> SendMessageBatchRequestEntryTypeDef:
    return cast("SendMessageBatchRequestEntryTypeDef", {"Id": number, **_members(post)})


def _members(post: Post) -> dict[str, Any]:
    members: dict[str, Any] = {"MessageBody": post.body}
    if post.delay_s:
        members["DelaySeconds"] = post.delay_s
    if post.group is not None:
        members["MessageGroupId"] = post.group
    if post.deduplication_id is not None:
        members["MessageDeduplicationId"] = post.deduplication_id
    return members


def _refused(url: str, entry: BatchResultErrorEntryTypeDef, failed: int, total: int) -> StoreError:
    code = "store_unavailable" if entry["SenderFault"] else "store_throttled"
    return StoreError(
        f"{_place(url)}: {failed} of {total} messages were refused: {entry['Code']}: {entry.get('Message', '')}",
        code=code,
    )


def _place(url: str) -> str:
    return f"queue {url.rsplit('/', 1)[-1]}"
