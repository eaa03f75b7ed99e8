"""Objects of the bucket."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from botocore.stub import Stubber
from moto.s3.models import s3_backends

from iii_runtime.adapters.aws.blob_store import S3Blobs, S3BlobStore, link_of, link_value, payload_key
from iii_runtime.core.errors import StoreError
from iii_runtime.core.message import BlobLink
from tests.contract.aws_services import HastyClock, Services, running_services


@pytest.fixture
def services() -> Iterator[Services]:
    with running_services() as services:
        yield services


@pytest.fixture
def blobs(services: Services) -> S3Blobs:
    return S3Blobs(services.clients, services.deployment.bucket_name, HastyClock())


def test_a_plain_key_stays_readable_and_any_other_is_hashed() -> None:
    assert payload_key("0b5c-A_9") == "payloads/0b5c-A_9"
    odd = [payload_key(key) for key in ("../x", "a/b", ".", "", "~", "é", "k" * 201)]
    assert len(set(odd)) == len(odd)
    assert all(key.startswith("payloads/~") and len(key) == len("payloads/~") + 64 for key in odd)


async def test_a_link_leads_to_what_was_stored_and_nothing_else(blobs: S3Blobs, services: Services) -> None:
    link = await blobs.put("state/1", b"\0\xff")
    assert (link.key, link.size) == ("state/1", 2)
    assert link_of(link_value(link)) == link
    assert await blobs.follow(link) == b"\0\xff"
    services.clients.s3.put_object(Bucket=blobs.bucket, Key="state/1", Body=b"\0\xfe")
    with pytest.raises(StoreError, match="is not what was stored") as caught:
        await blobs.follow(link)
    assert caught.value.code == "store_corrupt"


def test_a_link_is_absent_or_whole() -> None:
    assert link_of(None) is None
    for broken in ("text", 1, {"k": "a"}, {"k": "a", "n": "1", "h": "x"}):
        with pytest.raises((LookupError, TypeError)):
            link_of(broken)  # type: ignore[arg-type]


async def test_an_object_expires_when_it_is_told_to(blobs: S3Blobs, services: Services) -> None:
    await blobs.put("state/1", b"x")
    await blobs.put("state/2", b"x", expires=True)
    await blobs.put("state/3", b"x")
    await blobs.expire("state/3")
    await blobs.expire("state/gone")
    tags = {
        key: services.clients.s3.get_object_tagging(Bucket=blobs.bucket, Key=key)["TagSet"]
        for key in ("state/1", "state/2", "state/3")
    }
    expiring = [{"Key": "iii-expire", "Value": "true"}]
    assert tags == {"state/1": [], "state/2": expiring, "state/3": expiring}


async def test_an_object_that_expires_is_as_new_and_unchanged(blobs: S3Blobs, services: Services) -> None:
    """The lifecycle of the bucket counts the days from when an object was created."""
    link = await blobs.put("state/1", b"\0\xff")
    stored = s3_backends[services.deployment.account]["aws"].buckets[blobs.bucket].keys["state/1"]
    stored.last_modified -= timedelta(days=30)
    before = services.clients.s3.head_object(Bucket=blobs.bucket, Key="state/1")["LastModified"]
    await blobs.expire("state/1")
    after = services.clients.s3.head_object(Bucket=blobs.bucket, Key="state/1")["LastModified"]
    assert after - before > timedelta(days=29)
    assert await blobs.follow(link) == b"\0\xff"


async def test_a_missing_object_is_told_apart_from_a_missing_bucket(blobs: S3Blobs, services: Services) -> None:
    with pytest.raises(StoreError, match="blob state/9 is missing") as caught:
        await blobs.follow(BlobLink(key="state/9", size=1, sha256=""))
    assert caught.value.code == "blob_missing"
    services.clients.s3.delete_bucket(Bucket=blobs.bucket)
    for operation in (blobs.get("state/9"), blobs.put("state/9", b""), blobs.expire("state/9")):
        with pytest.raises(StoreError) as caught:
            await operation
        assert caught.value.code == "store_missing"


async def test_a_bucket_that_asks_to_slow_down_is_asked_again(services: Services) -> None:
    clock = HastyClock()
    store = S3BlobStore(services.clients, services.deployment.bucket_name, clock)
    with Stubber(services.clients.s3) as s3:
        s3.add_client_error("put_object", "SlowDown", http_status_code=503)
        s3.add_client_error("put_object", "InternalError", http_status_code=500)
        s3.add_response("put_object", {})
        await store.put("key", "text")
    assert len(clock.pauses) == 2
