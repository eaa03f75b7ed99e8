"""What the adapters of queues have in common: the services, and what is built on them."""

from __future__ import annotations

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.deaths import Deaths
from iii_runtime.adapters.aws.letter_index import LetterIndex
from iii_runtime.adapters.aws.message_item import MessageItems
from iii_runtime.adapters.aws.message_sender import MessageSender
from iii_runtime.adapters.aws.table import Table
from iii_runtime.core.queue import QueueSpec
from iii_runtime.plan.names import Deployment
from iii_runtime.ports.blob_store import BlobStore
from iii_runtime.ports.clock import Clock, IdSource


class QueueParts:
    """The queues of one deployment, shared by all who send, receive, list or tidy.

    Attributes:
        clients: Service clients.
        deployment: The names of everything.
        table: The table of the deployment.
        blobs: Where letters and payloads go that are too large for an item or a message.
        clock: The time, which SQS's own must follow.
        ids: Tokens of letters and redrives.
        items: What is remembered of messages.
        sender: Sends messages.
        deaths: Writes deaths and puts letters.
        letters: The list of the dead.
    """

    def __init__(
        self, clients: Clients, deployment: Deployment, table: Table, blobs: BlobStore, clock: Clock, ids: IdSource
    ) -> None:
        self.clients = clients
        self.deployment = deployment
        self.table = table
        self.blobs = blobs
        self.clock = clock
        self.ids = ids
        self.items = MessageItems(table, clock)
        self.sender = MessageSender(clients, clock)
        self.deaths = Deaths(self.items, self.sender, blobs, deployment, clock, ids)
        self.letters = LetterIndex(clients, table, clock)

    def url(self, queue: QueueSpec) -> str:
        """Return the address of a queue."""
        return self.deployment.queue_url(self.deployment.queue_name(queue))

    def letter_url(self, queue: QueueSpec) -> str:
        """Return the address of a queue's dead-letter queue."""
        return self.deployment.queue_url(self.deployment.letter_queue_name(queue))
