"""Topics with a broker of their own between a publish and the queues of the subscriptions."""

from __future__ import annotations

from typing import Protocol

from iii_runtime.ports.message_queue import OutgoingMessage


class TopicPublisher(Protocol):
    """Hands one message to every subscription of a topic, for all or for none."""

    async def publish(self, topic: str, message: OutgoingMessage, *, ordered: bool) -> None:
        """Store the message for every subscription of the topic. From then on each of them runs at least once.

        Args:
            topic: Name of the topic.
            message: Its envelope is one for all: its queue is the topic, its function `TOPIC_FUNCTION`.
            ordered: Whether the topic has an ordered subscription, and with it keeps an order.

        Raises:
            StoreError: Nothing was stored.
        """
        ...
