"""What an app keeps: its table, its bucket, and the topic of its progress."""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from iii_runtime.cdk.acknowledgements import acknowledge
from iii_runtime.core.config.values import StageConfig
from iii_runtime.plan.names import LETTERS_INDEX, NAMES_INDEX, WAKE_INDEX, Deployment

PAYLOAD_DAYS = 60
"""How long payloads too large for a message are kept: longer than a message, its letter, and the message again."""

REPLACED_STATE_DAYS = 7
RESPONSE_DAYS = 2


def add_table(scope: Construct, deployment: Deployment, stage: StageConfig) -> dynamodb.TableV2:
    """Create the table. In production it is protected from deletion and stays when its stack goes."""
    text, number = dynamodb.AttributeType.STRING, dynamodb.AttributeType.NUMBER
    return dynamodb.TableV2(
        scope,
        "Table",
        table_name=deployment.table_name,
        partition_key=dynamodb.Attribute(name="pk", type=text),
        sort_key=dynamodb.Attribute(name="sk", type=text),
        billing=dynamodb.Billing.on_demand(),
        time_to_live_attribute="ttl",
        dynamo_stream=dynamodb.StreamViewType.NEW_AND_OLD_IMAGES,
        point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
            point_in_time_recovery_enabled=True
        ),
        deletion_protection=stage.production,
        removal_policy=cdk.RemovalPolicy.RETAIN if stage.production else cdk.RemovalPolicy.DESTROY,
        global_secondary_indexes=[
            dynamodb.GlobalSecondaryIndexPropsV2(
                index_name=LETTERS_INDEX,
                partition_key=dynamodb.Attribute(name="dq", type=text),
                sort_key=dynamodb.Attribute(name="dt", type=number),
                projection_type=dynamodb.ProjectionType.KEYS_ONLY,
            ),
            dynamodb.GlobalSecondaryIndexPropsV2(
                index_name=NAMES_INDEX,
                partition_key=dynamodb.Attribute(name="nk", type=text),
                sort_key=dynamodb.Attribute(name="nr", type=text),
                projection_type=dynamodb.ProjectionType.KEYS_ONLY,
            ),
            dynamodb.GlobalSecondaryIndexPropsV2(
                index_name=WAKE_INDEX,
                partition_key=dynamodb.Attribute(name="ws", type=number),
                sort_key=dynamodb.Attribute(name="wa", type=number),
                projection_type=dynamodb.ProjectionType.KEYS_ONLY,
            ),
        ],
    )


def add_bucket(scope: Construct, deployment: Deployment, stage: StageConfig) -> s3.Bucket:
    """Create the bucket of what is too large for a message or an item. Objects that nothing names any more expire."""
    days = cdk.Duration.days
    bucket = s3.Bucket(
        scope,
        "Bucket",
        bucket_name=deployment.bucket_name,
        encryption=s3.BucketEncryption.S3_MANAGED,
        block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
        enforce_ssl=True,
        minimum_tls_version=1.2,
        removal_policy=cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if stage.production else cdk.RemovalPolicy.DESTROY,
        lifecycle_rules=[
            s3.LifecycleRule(id="payloads", prefix="payloads/", expiration=days(PAYLOAD_DAYS)),
            s3.LifecycleRule(
                id="replaced-state",
                prefix="state/",
                tag_filters={"iii-expire": "true"},
                expiration=days(REPLACED_STATE_DAYS),
            ),
            s3.LifecycleRule(id="responses", prefix="responses/", expiration=days(RESPONSE_DAYS)),
            s3.LifecycleRule(id="unfinished", abort_incomplete_multipart_upload_after=days(1)),
        ],
    )
    acknowledge(
        bucket,
        {
            "AwsSolutions-S1": "Only the roles of the app reach it, with random keys; access logs would cost more than "
            "the objects. CloudTrail data events serve those who need an account of reads."
        },
    )
    return bucket


def add_topic(scope: Construct, identity: str, name: str, *, ordered: bool = False) -> sns.Topic:
    """Create an SNS topic that takes and gives its messages over TLS only, and keeps them encrypted."""
    topic = sns.Topic(
        scope,
        identity,
        topic_name=name,
        fifo=True if ordered else None,
        content_based_deduplication=False if ordered else None,
        fifo_throughput_scope=sns.FifoThroughputScope.MESSAGE_GROUP if ordered else None,
        enforce_ssl=True,
    )
    resource = topic.node.default_child
    assert isinstance(resource, sns.CfnTopic)  # noqa: S101 - what the CDK makes
    # The key of the account for SNS, which lets everybody use it who may use the topic.
    resource.kms_master_key_id = "alias/aws/sns"
    return topic
