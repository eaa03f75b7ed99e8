"""The change feed: the table's stream, read by one Lambda in the order of each key."""

from __future__ import annotations

import json

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from iii_runtime.plan.limits import CHANGE_AGE

BATCH_SIZE = 100
STORED = ("S#", "T#")
SENT = "E#"
RUNS = "W#"
"""Prefixes of the keys that the feed delivers: state and stream items with every change, events when they are made, and
of what belongs to runs their records."""


def add_feed_mapping(
    scope: Construct, table: dynamodb.TableV2, failures: sqs.Queue, feed: lambda_.IFunction
) -> lambda_.CfnEventSourceMapping:
    """Let the feed read the table's stream. What it gives up is named on the queue of failures."""
    mapping = lambda_.CfnEventSourceMapping
    return mapping(
        scope,
        "Feed-Mapping",
        event_source_arn=table.table_stream_arn,
        function_name=feed.function_name,
        # From the oldest change on: what was stored before the mapping existed is delivered too.
        starting_position="TRIM_HORIZON",
        batch_size=BATCH_SIZE,
        # One batch of a shard at a time: with more only the changes of a single item would stay in order.
        parallelization_factor=1,
        bisect_batch_on_function_error=True,
        function_response_types=["ReportBatchItemFailures"],
        maximum_record_age_in_seconds=CHANGE_AGE.seconds,
        maximum_retry_attempts=-1,
        destination_config=mapping.DestinationConfigProperty(
            on_failure=mapping.OnFailureProperty(destination=failures.queue_arn)
        ),
        filter_criteria=mapping.FilterCriteriaProperty(
            filters=[
                mapping.FilterProperty(pattern=json.dumps(_keys(*STORED))),
                mapping.FilterProperty(pattern=json.dumps({"eventName": ["INSERT"], **_keys(SENT)})),
                mapping.FilterProperty(pattern=json.dumps({"eventName": ["INSERT", "MODIFY"], **_keys(RUNS, sk="@")})),
            ]
        ),
    )


def _keys(*prefixes: str, sk: str | None = None) -> dict[str, object]:
    keys: dict[str, object] = {"pk": {"S": [{"prefix": prefix} for prefix in prefixes]}}
    if sk is not None:
        keys["sk"] = {"S": [sk]}
    return {"dynamodb": {"Keys": keys}}
