"""Names on AWS follow from app, stage and id alone, fit AWS's rules, and tell different things apart."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from botocore.session import get_session
from hypothesis import given
from hypothesis import strategies as st

from iii_runtime.core.errors import HostError
from iii_runtime.core.queue import QueueSpec
from iii_runtime.plan.names import (
    DOMAINS,
    FEED_FAILURES,
    TICK_QUEUE,
    Deployment,
    clashing_app_part,
    deployed_length,
    partition_of,
    slug,
)

NAMES = Deployment(app="shop", stage="dev", region="eu-west-1", account="123456789012")
LONGEST = Deployment(app="a" * 24, stage="b" * 12, region="ap-southeast-1", account="123456789012")
CHINA = Deployment(app="shop", stage="dev", region="cn-north-1", account="123456789012", partition="aws-cn")

anything = st.text(min_size=1, max_size=200)


def test_a_name_says_whose_it_is_and_what_it_is() -> None:
    mail = QueueSpec(name="mail")
    assert NAMES.function_name("orders::charge-payment") == "shop-dev-f-orders--charge-payment"
    assert NAMES.queue_name(mail) == "shop-dev-q-mail"
    assert NAMES.letter_queue_name(mail) == "shop-dev-d-mail"
    assert NAMES.topic_name("order.paid", ordered=False) == "shop-dev-t-order-paid"
    assert NAMES.system_name("dispatcher") == "shop-dev-x-dispatcher"
    assert [NAMES.own_queue_name(name) for name in (TICK_QUEUE, FEED_FAILURES)] == [
        "shop-dev-x-tick",
        "shop-dev-x-feed-failures",
    ]
    assert NAMES.table_name == "shop-dev"
    assert NAMES.bucket_name == "shop-dev-blobs-123456789012-eu-west-1"


@pytest.mark.parametrize(
    ("queue", "is_fifo"),
    [
        (QueueSpec(name="q"), False),
        (QueueSpec(name="q", kind="fifo"), True),
        (QueueSpec(name="q", concurrency=1), True),
    ],
)
def test_an_ordered_queue_is_a_fifo_queue_and_so_are_its_letters(queue: QueueSpec, is_fifo: bool) -> None:
    assert NAMES.queue_name(queue).endswith(".fifo") == is_fifo
    assert NAMES.letter_queue_name(queue).endswith(".fifo") == is_fifo


def test_a_long_name_ends_with_a_hash_of_all_of_it() -> None:
    first, second = NAMES.function_name("orders::" + "x" * 80), NAMES.function_name("orders::" + "x" * 81)
    assert len(first) == len(second) == 64
    assert first != second
    assert re.fullmatch(r"shop-dev-f-orders--x+-[0-9a-f]{8}", first)


def test_names_never_change() -> None:
    """Written down: another name would be another resource, and what the old one has would be lost."""
    assert NAMES.function_name("orders::" + "x" * 80) == f"shop-dev-f-orders--{'x' * 36}-e49a5fd9"
    assert NAMES.rule_name("a::b|0 0 * * * *|UTC") == "shop-dev-a--b-0-0---------UTC-7b2b69a0"
    assert LONGEST.bucket_name == "aaaaaaaaaaaaaaaaaaaa-745e5dc1-blobs-123456789012-ap-southeast-1"


@given(anything)
def test_whatever_the_id_the_names_are_as_aws_takes_them(identity: str) -> None:
    for names in (NAMES, LONGEST):
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", names.function_name(identity))
        assert re.fullmatch(r"[A-Za-z0-9._-]{1,64}", names.rule_name(identity))
        for ordered in (False, True):
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,251}(\.fifo)?", names.topic_name(identity, ordered=ordered))
            queue = QueueSpec(name=identity, kind="fifo" if ordered else "standard")
            for name in (names.queue_name(queue), names.letter_queue_name(queue)):
                assert len(name) <= 80
                assert re.fullmatch(r"[A-Za-z0-9_-]+(\.fifo)?", name)


def test_the_bucket_of_the_longest_names_in_the_longest_region_fits() -> None:
    assert len(LONGEST.bucket_name) == 63
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", LONGEST.bucket_name)


@given(anything, anything)
def test_two_ids_that_slugs_tell_apart_have_two_names(first: str, second: str) -> None:
    is_same = slug(first) == slug(second) and len(NAMES.function_name(first)) < 64
    if not is_same and first != second:
        assert NAMES.function_name(first) != NAMES.function_name(second)


def test_arns_and_urls_are_those_of_the_partition() -> None:
    assert NAMES.function_arn("a::b") == "arn:aws:lambda:eu-west-1:123456789012:function:shop-dev-f-a--b"
    assert NAMES.topic_arn("t", ordered=True) == "arn:aws:sns:eu-west-1:123456789012:shop-dev-t-t.fifo"
    assert NAMES.table_arn == "arn:aws:dynamodb:eu-west-1:123456789012:table/shop-dev"
    assert NAMES.bucket_arn == f"arn:aws:s3:::{NAMES.bucket_name}"
    assert NAMES.queue_url("q") == "https://sqs.eu-west-1.amazonaws.com/123456789012/q"
    assert CHINA.queue_url("q") == "https://sqs.cn-north-1.amazonaws.com.cn/123456789012/q"
    assert CHINA.bucket_arn.startswith("arn:aws-cn:s3:::")


def test_every_region_that_the_sdk_knows_has_its_partition_and_the_address_of_its_queues() -> None:
    session = get_session()
    for partition in session.get_available_partitions():
        regions = session.get_available_regions("sqs", partition_name=partition)
        assert {partition_of(region) for region in regions} == {partition}
        endpoint = session.create_client("sqs", region_name=regions[0]).meta.endpoint_url
        known = replace(NAMES, region=regions[0], partition=partition)
        assert known.queue_url("q") == f"{endpoint}/123456789012/q"
    assert set(session.get_available_partitions()) == set(DOMAINS)


def test_a_partition_that_nobody_knows_has_no_addresses() -> None:
    with pytest.raises(HostError, match=r"'aws-moon' is not known.* Take a newer version") as refused:
        replace(NAMES, partition="aws-moon").queue_url("q")
    assert refused.value.code == "partition_unknown"


def test_a_token_counts_as_what_it_will_be() -> None:
    account = "${Token[AWS.AccountId.3]}"
    assert deployed_length(f"arn:{account}") == deployed_length("arn:" + "1" * 14)
    assert deployed_length("größe") == 7


@pytest.mark.parametrize(
    ("app", "part"),
    [("shop", None), ("my-shop", None), ("f", None), ("shop-dev-f", "f"), ("a-q-b", "q"), ("x-x", "x"), ("a-fq", None)],
)
def test_an_app_name_with_the_mark_of_a_kind_in_it_is_told(app: str, part: str | None) -> None:
    assert clashing_app_part(app) == part
