"""Large texts and bodies as objects of one S3 bucket."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from botocore.exceptions import ClientError

from iii_runtime.adapters.aws.attributes import Value
from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.adapters.aws.failures import with_retries
from iii_runtime.core.errors import StoreError
from iii_runtime.core.members import integer, text
from iii_runtime.core.message import BlobLink
from iii_runtime.ports.clock import Clock

T = TypeVar("T")

PAYLOADS = "payloads/"
PATIENCE = timedelta(seconds=15)
"""How long after the first attempt a request is sent again: an object may take 10 s, and gets a second try."""

EXPIRING = ("iii-expire", "true")
"""Tag of an object that nothing links to any more; the bucket's lifecycle removes it a week after it was created."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,200}")


class S3Blobs:
    """Immutable objects by key. An object is stored before the item or message that links to it."""

    def __init__(self, clients: Clients, bucket: str, clock: Clock) -> None:
        """Use the bucket called `bucket`; pauses between repetitions are waited on `clock`."""
        self.bucket = bucket
        self._clients = clients
        self._clock = clock

    async def put(self, key: str, body: bytes, *, expires: bool = False) -> BlobLink:
        """Store `body` under a fresh key and return its link.

        Args:
            key: Key of the object; its prefix says how long the bucket keeps it.
            body: What to store.
            expires: Whether it may go after a week, whatever its prefix.

        Raises:
            StoreError: See `failures`. There may or may not be such an object then.
        """
        more: dict[str, Any] = {"Tagging": "=".join(EXPIRING)} if expires else {}
        await self._ask(lambda: self._clients.s3.put_object(Bucket=self.bucket, Key=key, Body=body, **more))
        return BlobLink(key=key, size=len(body), sha256=hashlib.sha256(body).hexdigest())

    async def get(self, key: str, *, called: str | None = None) -> bytes:
        """Return what is stored under `key`.

        Args:
            key: Key of the object.
            called: What the caller calls it, for the message of an error; by default its key.

        Raises:
            StoreError: `blob_missing`: there is no such object; else see `failures`.
        """
        return await self._ask(lambda: self._read(key, called or key))

    async def follow(self, link: BlobLink) -> bytes:
        """Return what `link` leads to.

        Raises:
            StoreError: `blob_missing`; `store_corrupt`: the object is another one than was linked; else see `failures`.
        """
        body = await self.get(link.key)
        if hashlib.sha256(body).hexdigest() != link.sha256:
            raise StoreError(
                f"object {link.key} of bucket {self.bucket} is not what was stored: it has {len(body):,} bytes, "
                f"{link.size:,} were written, or other ones. Put a copy of the object back if there is one.",
                code="store_corrupt",
            )
        return body

    async def expire(self, key: str) -> None:
        """Let the lifecycle of the bucket remove an object a week from now, because nothing links to it any more.

        A missing one is gone already. Repeated, its week begins again.

        Raises:
            StoreError: See `failures`.
        """
        try:
            # The lifecycle counts from when an object was created, and a reader that lags behind needs its week from
            # now on: so the object is made anew, in its own place.
            await self._ask(
                lambda: self._clients.s3.copy_object(
                    Bucket=self.bucket,
                    Key=key,
                    CopySource={"Bucket": self.bucket, "Key": key},
                    MetadataDirective="REPLACE",
                    TaggingDirective="REPLACE",
                    Tagging="=".join(EXPIRING),
                )
            )
        except StoreError as error:
            if not _is_missing(error.__cause__):
                raise

    def _read(self, key: str, called: str) -> bytes:
        try:
            return self._clients.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        except ClientError as error:
            if not _is_missing(error):
                raise
            raise StoreError(
                f"blob {called} is missing: bucket {self.bucket} has no object {key}. It may have expired; restore it, "
                "or send the data again.",
                code="blob_missing",
            ) from error

    async def _ask(self, operation: Callable[[], T]) -> T:
        return await with_retries(operation, clock=self._clock, where=f"bucket {self.bucket}", patience=PATIENCE)


class S3BlobStore:
    """Payloads too large for a message, under `payloads/`; the lifecycle of the bucket keeps them for 60 days."""

    def __init__(self, clients: Clients, bucket: str, clock: Clock) -> None:
        """Use the bucket called `bucket`."""
        self._blobs = S3Blobs(clients, bucket, clock)

    async def put(self, key: str, text: str) -> None:
        """Store a text durably under a fresh key.

        Raises:
            StoreError: See `failures`.
        """
        await self._blobs.put(payload_key(key), text.encode("utf-8"))

    async def get(self, key: str) -> str:
        """Return the text.

        Raises:
            StoreError: `blob_missing`: there is no such blob; `store_corrupt`: it is no text; else see `failures`.
        """
        body = await self._blobs.get(payload_key(key), called=key)
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise StoreError(
                f"blob {key} is no UTF-8 text, so it is not what was stored. Put a copy of the object back if there is "
                "one.",
                code="store_corrupt",
            ) from error


def link_value(link: BlobLink) -> dict[str, Value]:
    """Return the attribute value of a link."""
    return {"k": link.key, "n": link.size, "h": link.sha256}


def link_of(stored: Value) -> BlobLink | None:
    """Return the link of its attribute value, None if there is no attribute.

    Raises:
        LookupError, TypeError: It is no link.
    """
    if stored is None:
        return None
    if not isinstance(stored, dict):
        raise TypeError("a stored link is a map")
    return BlobLink(key=text(stored, "k"), size=integer(stored, "n"), sha256=text(stored, "h"))


def payload_key(key: str) -> str:
    """Return the object key of a payload; a key with letters that S3 may read otherwise is hashed."""
    if _PLAIN_KEY.fullmatch(key):
        return PAYLOADS + key
    return f"{PAYLOADS}~{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _is_missing(error: BaseException | None) -> bool:
    return isinstance(error, ClientError) and error.response.get("Error", {}).get("Code") == "NoSuchKey"
