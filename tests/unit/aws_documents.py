"""The document stores of one stage in memory, and what can happen to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ReadTimeoutError

from iii_runtime.adapters.aws.blob_store import S3Blobs
from iii_runtime.adapters.aws.change_feed import DynamoChangeFeed
from iii_runtime.adapters.aws.kept_value import INLINE_BYTES
from iii_runtime.adapters.aws.state_store import DynamoStateStore
from iii_runtime.adapters.aws.stream_store import DynamoStreamStore
from iii_runtime.adapters.aws.table import Table
from iii_runtime.core.change import Change
from iii_runtime.core.payload import Json
from iii_runtime.ports.state_store import Notice
from iii_runtime.testing.clock import SequenceIds
from tests.contract.aws_services import HastyClock, Services

GET, PUT, UPDATE, DELETE = (f"dynamodb:{name}Item" for name in ("Get", "Put", "Update", "Delete"))
PUT_OBJECT, GET_OBJECT, TAG_OBJECT = "s3:PutObject", "s3:GetObject", "s3:CopyObject"
LARGE = "x" * (INLINE_BYTES + 1)
NOTICE = Notice(stream_name="progress", group_id="g", item_id=None, type="step", data={"n": 1})
INCREMENT: list[Json] = [{"type": "increment", "path": "n", "by": 1}]


class Stage:
    """The stores of one stage."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self.clock = HastyClock()
        clients, deployment = services.clients, services.deployment
        self.ids = SequenceIds()
        self.table = Table(clients, deployment.table_name, self.clock)
        self.blobs = S3Blobs(clients, deployment.bucket_name, self.clock)
        self.state = DynamoStateStore(self.table, self.blobs, self.clock, self.ids)
        self.stream = DynamoStreamStore(self.table, self.blobs, self.clock, self.ids)
        self.feed = DynamoChangeFeed(clients, deployment.table_name, self.blobs, self.clock)

    def bounded_state(self, max_value_bytes: int) -> DynamoStateStore:
        return DynamoStateStore(self.table, self.blobs, self.clock, self.ids, max_value_bytes=max_value_bytes)

    def calls(self) -> list[str]:
        """Return the requests since the last time."""
        calls = list(self.services.calls)
        self.services.calls.clear()
        return calls

    async def changes(self) -> list[Change]:
        entries = await self.feed.read(0, 1000)
        self.calls()
        return [entry.change for entry in entries]

    def objects(self) -> list[str]:
        found = self.services.clients.s3.list_objects_v2(Bucket=self.blobs.bucket).get("Contents", [])
        self.calls()
        return [entry["Key"] for entry in found]

    def linked(self) -> list[str]:
        """Return the keys of the objects that documents link to."""
        items = self.services.clients.dynamodb.scan(TableName=self.table.name)["Items"]
        return [item["vl"]["M"]["k"]["S"] for item in items if "vl" in item]

    def expiring(self) -> list[str]:
        tags = self.services.clients.s3.get_object_tagging
        return [key for key in self.objects() if tags(Bucket=self.blobs.bucket, Key=key)["TagSet"]]

    def after(self, operation: str, action: Any, *, times: int = 1) -> None:
        """Do something as soon as DynamoDB has carried out an operation, before its reply arrives."""
        left = [times]

        def act(**_: object) -> None:
            if left[0] > 0:
                left[0] -= 1
                action()

        self.services.clients.dynamodb.meta.events.register(f"after-call.dynamodb.{operation}", act)

    def lose_replies(self, operation: str, *, times: int = 1) -> None:
        self.after(operation, _lose, times=times)

    def somebody_puts(self, scope: str, key: str, text: str, *, times: int = 1) -> Any:
        """Return an action by which another host replaces a value."""
        numbers = iter(range(times))

        def act() -> None:
            self.services.clients.dynamodb.put_item(
                TableName=self.table.name,
                Item={
                    "pk": {"S": f"S#{scope}"},
                    "sk": {"S": key},
                    "v": {"M": {"n": {"S": text}}},
                    "n": {"S": f"other-{next(numbers)}"},
                    "at": {"N": "1"},
                },
            )

        return act


def _lose() -> None:
    raise ReadTimeoutError(endpoint_url="https://dynamodb")


def set_op(path: str | Sequence[str], value: Json) -> Json:
    return {"type": "set", "path": path if isinstance(path, str) else [*path], "value": value}
