"""Durable topics as SNS topics: one publish, and SNS has a copy for the queue of every subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import with_retries
from iii_runtime.adapters.aws.message_sender import deduplication_id
from iii_runtime.core.errors import StoreError
from iii_runtime.core.queue import SINGLE_GROUP
from iii_runtime.plan.names import Deployment
from iii_runtime.ports.clock import Clock
from iii_runtime.ports.message_queue import OutgoingMessage

if TYPE_CHECKING:
    from mypy_boto3_sns.type_defs import PublishInputTypeDef


class SnsTopicPublisher:
    """Publishes to the topics of a deployment. Every subscription gets the body as it is, at least once."""

    def __init__(self, clients: Clients, deployment: Deployment, clock: Clock) -> None:
        """Publish in `deployment`; pauses between repetitions are waited on `clock`."""
        self._clients = clients
        self._deployment = deployment
        self._clock = clock

    async def publish(self, topic: str, message: OutgoingMessage, *, ordered: bool) -> None:
        """Hand the message to SNS, for all subscriptions or for none.

        A publish whose answer is lost is repeated with the same body. A FIFO topic swallows the repetition; another
        topic delivers it too, and each subscription sees one receipt twice. An ordered topic is one group: its messages
        come in the order of their publishes.

        Raises:
            StoreError: See `failures`. It may have been published all the same, then for every subscription.
        """
        request: PublishInputTypeDef = {
            "TopicArn": self._deployment.topic_arn(topic, ordered=ordered),
            "Message": message.body,
        }
        if ordered:
            request["MessageGroupId"] = SINGLE_GROUP
            request["MessageDeduplicationId"] = deduplication_id(message.receipt, 0)
        try:
            await with_retries(lambda: self._clients.sns.publish(**request), clock=self._clock, where=f"topic {topic}")
        except StoreError as error:
            message_text = f"{error.message} The message may have been published all the same."
            raise StoreError(message_text, code=error.code) from error
