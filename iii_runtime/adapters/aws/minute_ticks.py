"""Cron ticks that no service of AWS can time: messages delayed to the second, and the start of a job's function.

Both may happen twice, after a reply that was lost; whoever runs the tick claims it first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import FIRST_PAUSE, with_retries
from iii_runtime.core.errors import StoreError
from iii_runtime.core.remote import RemoteTick, encode_request
from iii_runtime.plan.names import TICK_QUEUE, Deployment
from iii_runtime.ports.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

_BATCH = 10
_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedTick:
    """A tick to be sent ahead of its time.

    Attributes:
        tick: The tick.
        delay: How long it stays invisible, rounded up to whole seconds; 15 minutes at most.
    """

    tick: RemoteTick
    delay: timedelta


class MinuteTicks:
    """The queue of ticks that wait for their second, and the Lambdas they start.

    Args:
        clients: The clients.
        deployment: All names.
        clock: What pauses are waited on.
    """

    def __init__(self, clients: Clients, deployment: Deployment, clock: Clock) -> None:
        self._clients = clients
        self._deployment = deployment
        self._clock = clock
        self._url = deployment.queue_url(deployment.own_queue_name(TICK_QUEUE))

    async def send(self, ticks: Sequence[DelayedTick]) -> None:
        """Send ticks ahead, ten in a request.

        Raises:
            StoreError: Not all of them were sent.
        """
        for start in range(0, len(ticks), _BATCH):
            await self._send_batch(ticks[start : start + _BATCH])

    async def start(self, function_id: str, tick: RemoteTick) -> None:
        """Start the Lambda of a job's function for a tick, and do not wait for it.

        Raises:
            StoreError: It was not accepted.
        """
        name = self._deployment.function_name(function_id)
        payload = json.dumps(encode_request(tick)).encode("ascii")
        await with_retries(
            lambda: self._clients.starting().invoke(FunctionName=name, InvocationType="Event", Payload=payload),
            clock=self._clock,
            where=f"Lambda {name}",
        )

    async def _send_batch(self, ticks: Sequence[DelayedTick]) -> None:
        waiting = {str(index): _entry(str(index), tick) for index, tick in enumerate(ticks)}
        refused: list[str] = []
        for attempt in range(_TRIES):
            if attempt:
                await self._clock.sleep_until(self._clock.now() + FIRST_PAUSE * 2**attempt)
            answer = await with_retries(
                lambda: self._clients.sqs.send_message_batch(QueueUrl=self._url, Entries=list(waiting.values())),
                clock=self._clock,
                where=f"queue {self._url}",
            )
            for sent in answer.get("Successful", []):
                waiting.pop(sent["Id"], None)
            if not waiting:
                return
            refused = [f"{failed['Code']}: {failed.get('Message', '')}" for failed in answer.get("Failed", [])]
        raise StoreError(f"queue {self._url} refused {len(waiting)} of {len(ticks)} ticks: {'; '.join(refused)}.")


def _entry(identity: str, delayed: DelayedTick) -> SendMessageBatchRequestEntryTypeDef:
    return {
        "Id": identity,
        "MessageBody": json.dumps(encode_request(delayed.tick)),
        "DelaySeconds": -(-delayed.delay // timedelta(seconds=1)),
    }
