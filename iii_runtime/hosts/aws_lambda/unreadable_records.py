"""Records of the change feed that nobody can read: named on the queue of failures, so that they hold nothing up."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Protocol

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import with_retries
from iii_runtime.core.errors import IiiError
from iii_runtime.plan.names import FEED_FAILURES, Deployment
from iii_runtime.ports.clock import Clock

_log = logging.getLogger("iii_runtime.change")


class UnreadableRecords(Protocol):
    """Takes the references of records that can never be read."""

    async def report(self, sequence: str, body: Mapping[str, object], error: IiiError) -> None:
        """Keep a reference to a record. A record that comes again may be reported again.

        Args:
            sequence: Its number in the stream.
            body: The record; only its keys are kept.
            error: Why it cannot be read.

        Raises:
            StoreError: It could not be kept.
        """


class FeedFailures:
    """The queue of failures, on which Lambda names what it gives up by itself.

    A reference has the members `sequence_number`, `event_id`, `event_name`, `keys` (`pk` and `sk` of the item), `code`
    and `cause`, the type of what was wrong. No value is in it, nor any text that could cite one. The item itself may
    have been repaired since: it is read with the same keys.
    """

    def __init__(self, clients: Clients, deployment: Deployment, clock: Clock) -> None:
        """Use the queue of `deployment`; pauses between repetitions are waited on `clock`."""
        self._clients = clients
        self._url = deployment.queue_url(deployment.own_queue_name(FEED_FAILURES))
        self._clock = clock

    async def report(self, sequence: str, body: Mapping[str, object], error: IiiError) -> None:
        """Send the reference; see `UnreadableRecords`."""
        told = body.get("dynamodb")
        reference = {
            "sequence_number": sequence,
            "event_id": body.get("eventID"),
            "event_name": body.get("eventName"),
            "keys": told.get("Keys") if isinstance(told, Mapping) else None,
            "code": error.code,
            "cause": type(error.__cause__ or error).__name__,
        }
        text = json.dumps(reference)
        await with_retries(
            lambda: self._clients.sqs.send_message(QueueUrl=self._url, MessageBody=text),
            clock=self._clock,
            where=f"queue {self._url.rsplit('/', 1)[-1]}",
        )
        _log.error("a record of the change feed was given up", extra={"iii": reference})
