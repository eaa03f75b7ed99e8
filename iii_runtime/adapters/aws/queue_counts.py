"""How many messages SQS believes a queue has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import with_retries
from iii_runtime.core.frozen import frozen
from iii_runtime.ports.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_sqs.literals import QueueAttributeNameType

_VISIBLE: QueueAttributeNameType = "ApproximateNumberOfMessages"
_DELAYED: QueueAttributeNameType = "ApproximateNumberOfMessagesDelayed"
_IN_FLIGHT: QueueAttributeNameType = "ApproximateNumberOfMessagesNotVisible"


@frozen(kw_only=True)
class QueueCounts:
    """SQS's own estimates of one queue.

    Attributes:
        visible: Ready to be received.
        delayed: Waiting for the delay they were sent with.
        in_flight: Received, or hidden since.
    """

    visible: int
    delayed: int
    in_flight: int


async def count_messages(clients: Clients, url: str, clock: Clock) -> QueueCounts:
    """Return the estimates of the queue at `url`.

    Raises:
        StoreError: See `failures`.
    """
    answer = await with_retries(
        lambda: clients.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[_VISIBLE, _DELAYED, _IN_FLIGHT]),
        clock=clock,
        where=f"queue {url.rsplit('/', 1)[-1]}",
    )
    found = answer["Attributes"]
    return QueueCounts(visible=int(found[_VISIBLE]), delayed=int(found[_DELAYED]), in_flight=int(found[_IN_FLIGHT]))
