"""Publishes stream changes on the SNS topic of progress."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from iii_runtime.adapters.aws.batches import in_batches
from iii_runtime.adapters.aws.failures import ATTEMPTS, pause, with_retries
from iii_runtime.core.change import StreamChange
from iii_runtime.core.errors import StoreError
from iii_runtime.core.payload import Json, PayloadTooLargeError, render_json
from iii_runtime.ports.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_sns.client import SNSClient
    from mypy_boto3_sns.type_defs import BatchResultErrorEntryTypeDef, PublishBatchRequestEntryTypeDef

_log = logging.getLogger(__name__)

MOST_BYTES = 256 * 1024
"""Bytes of one request: the messages with their attributes."""

MOST_MESSAGES = 10
"""Messages of one request."""

_UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class SnsProgressPublisher:
    """Publishes each change as a WebSocket client would see it.

    The message attributes `stream` and `group`, for filter policies, are the names; characters that no message may have
    (control characters) are written `%07` there. A change too large for a message is published without its data, its
    `event` (of an event, the inner one) having `"data_omitted": true` in place of `data`.

    Args:
        client: The client of SNS.
        topic_arn: The topic.
        clock: What pauses between repetitions are waited on.
    """

    def __init__(self, client: SNSClient, topic_arn: str, clock: Clock) -> None:
        self._client = client
        self._topic_arn = topic_arn
        self._clock = clock

    async def publish(self, changes: Sequence[StreamChange]) -> frozenset[int]:
        """Publish changes, up to ten in a request, and return the places of those that could not be, from 0.

        What is refused in a way that passes is sent again a few times. Every refusal that stays is logged.
        """
        failed: set[int] = set()
        entries_of_all = (_entry(place, change) for place, change in enumerate(changes))
        for entries in in_batches(entries_of_all, most=MOST_MESSAGES, most_bytes=MOST_BYTES):
            failed |= await self._send(entries)
        return frozenset(failed)

    async def _send(self, entries: Sequence[PublishBatchRequestEntryTypeDef]) -> set[int]:
        left = list(entries)
        refused: set[int] = set()
        for attempt in range(1, ATTEMPTS + 1):
            try:
                failures = await self._request(left)
            except StoreError as error:
                _log.error("cannot publish progress", extra={"iii": {"changes": len(left), "error": error.message}})
                return refused | {int(entry["Id"]) for entry in left}
            passing = {told["Id"] for told in failures if not told["SenderFault"] and attempt < ATTEMPTS}
            for told in failures:
                if told["Id"] not in passing:
                    refused.add(int(told["Id"]))
                    fields = {"error": f"{told['Code']}: {told.get('Message', '')}"}
                    _log.error("a change cannot be published", extra={"iii": fields})
            if not passing:
                break
            left = [entry for entry in left if entry["Id"] in passing]
            await pause(self._clock, attempt)
        return refused

    async def _request(
        self, entries: Sequence[PublishBatchRequestEntryTypeDef]
    ) -> Sequence[BatchResultErrorEntryTypeDef]:
        answer = await with_retries(
            lambda: self._client.publish_batch(TopicArn=self._topic_arn, PublishBatchRequestEntries=entries),
            clock=self._clock,
            where=f"topic {self._topic_arn}",
        )
        return answer.get("Failed", [])


def _entry(place: int, change: StreamChange) -> tuple[PublishBatchRequestEntryTypeDef, int]:
    """Return a message whose id is `place`, and its size in bytes."""
    names = {"stream": _printable(change.stream_name), "group": _printable(change.group_id)}
    around = sum(len(name) + len("String") + len(value.encode("utf-8")) for name, value in names.items())
    message = _render(change, MOST_BYTES - around)
    entry: PublishBatchRequestEntryTypeDef = {
        "Id": str(place),
        "Message": message,
        "MessageAttributes": {name: {"DataType": "String", "StringValue": value} for name, value in names.items()},
    }
    return entry, len(message) + around


def _render(change: StreamChange, limit: int) -> str:
    payload = change.to_payload()
    try:
        message = render_json(payload, "the change")
    except PayloadTooLargeError:
        message = None
    if message is not None and len(message) <= limit:
        return message
    _log.warning("a change is too large to publish and goes without its data")
    omitted: dict[str, Json] = {"data_omitted": True}
    if change.kind == "event":
        payload["event"] = {"type": "event", "event": {"type": change.event_type, **omitted}}
    else:
        payload["event"] = {"type": change.kind, **omitted}
    return render_json(payload, "the change")


def _printable(name: str) -> str:
    return _UNPRINTABLE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8")), name)
