"""The names of everything on AWS, derived from app, stage and id. Hosts and constructs both work them out here."""

from __future__ import annotations

import hashlib
import re
from typing import Literal, TypeAlias

from iii_runtime.core.errors import HostError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.queue import QueueSpec

SystemRole: TypeAlias = Literal["dispatcher", "control", "tick", "feed", "websocket"]
"""The Lambdas beside the registered functions: runs messages of queues no single function is bound to; carries out
requests of the CLI; fires schedules by the second and looks after dead letters; delivers changes; serves WebSockets."""

TICK_QUEUE = "tick"
FEED_FAILURES = "feed-failures"
LETTERS_INDEX = "letters"
NAMES_INDEX = "names"
WAKE_INDEX = "wake"

_FUNCTION_LENGTH = 64
_QUEUE_LENGTH = 80
_TOPIC_LENGTH = 256
_BUCKET_PREFIX_LENGTH = 29
"""A bucket's name has 63 characters at most, and account and region, which are not known here, take up to 34."""
_HASH_LENGTH = 8
_TOKEN = re.compile(r"\$\{[^}]*\}")
_TOKEN_LENGTH = 14


DOMAINS = {
    "aws": "amazonaws.com",
    "aws-cn": "amazonaws.com.cn",
    "aws-us-gov": "amazonaws.com",
    "aws-eusc": "amazonaws.eu",
    "aws-iso": "c2s.ic.gov",
    "aws-iso-b": "sc2s.sgov.gov",
    "aws-iso-e": "cloud.adc-e.uk",
    "aws-iso-f": "csp.hci.ic.gov",
}
"""All partitions of AWS, and how addresses of services end there."""

_SPECIAL_REGIONS = {
    "cn-": "aws-cn",
    "us-gov-": "aws-us-gov",
    "eusc-": "aws-eusc",
    "us-iso-": "aws-iso",
    "us-isob-": "aws-iso-b",
    "eu-isoe-": "aws-iso-e",
    "us-isof-": "aws-iso-f",
}
"""Partitions by how the names of their regions begin."""


@frozen(kw_only=True)
class Deployment:
    """One app in one stage, region and account. All names are derived from it.

    Attributes:
        app: See `AwsConfig`.
        stage: Name of the stage.
        region: AWS region, or CloudFormation's token for it.
        account: AWS account id, or CloudFormation's token for it.
        partition: AWS partition, or CloudFormation's token for it: `aws`, but for the regions of `partition_of`.
    """

    app: str
    stage: str
    region: str
    account: str
    partition: str = "aws"

    @property
    def prefix(self) -> str:
        """What every name starts with."""
        return f"{self.app}-{self.stage}"

    @property
    def table_name(self) -> str:
        """The DynamoDB table."""
        return self.prefix

    @property
    def bucket_name(self) -> str:
        """The bucket of blobs; bucket names are unique in the world, hence account and region."""
        return f"{_fitted('', self.prefix, _BUCKET_PREFIX_LENGTH)}-blobs-{self.account}-{self.region}"

    @property
    def table_arn(self) -> str:
        """ARN of the DynamoDB table."""
        return self.arn("dynamodb", f"table/{self.table_name}")

    @property
    def bucket_arn(self) -> str:
        """ARN of the bucket of blobs."""
        return f"arn:{self.partition}:s3:::{self.bucket_name}"

    @property
    def function_pattern(self) -> str:
        """ARN pattern of all registered functions of this app and stage, and of nothing else."""
        return self.arn("lambda", f"function:{self.prefix}-f-*")

    @property
    def queue_pattern(self) -> str:
        """ARN pattern of all queues with messages of this app and stage, dead-letter queues excluded."""
        return self.arn("sqs", f"{self.prefix}-q-*")

    @property
    def letter_pattern(self) -> str:
        """ARN pattern of all dead-letter queues of this app and stage."""
        return self.arn("sqs", f"{self.prefix}-d-*")

    @property
    def topic_pattern(self) -> str:
        """ARN pattern of all topics of this app and stage."""
        return self.arn("sns", f"{self.prefix}-t-*")

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource in this region and account."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    def function_name(self, function_id: str) -> str:
        """Return the name of a registered function's Lambda."""
        return _fitted(f"{self.prefix}-f-", function_id, _FUNCTION_LENGTH)

    def function_arn(self, function_id: str) -> str:
        """Return the ARN of a registered function's Lambda."""
        return self.arn("lambda", f"function:{self.function_name(function_id)}")

    def system_name(self, role: SystemRole) -> str:
        """Return the name of one of the runtime's own Lambdas. No pattern of the functions matches it."""
        return f"{self.prefix}-x-{role}"

    def system_arn(self, role: SystemRole) -> str:
        """Return the ARN of one of the runtime's own Lambdas."""
        return self.arn("lambda", f"function:{self.system_name(role)}")

    def queue_name(self, queue: QueueSpec) -> str:
        """Return the name of the SQS queue behind a queue."""
        return self._queue_name("q", queue)

    def letter_queue_name(self, queue: QueueSpec) -> str:
        """Return the name of the SQS dead-letter queue of a queue."""
        return self._queue_name("d", queue)

    def own_queue_name(self, name: str) -> str:
        """Return the name of one of the runtime's own queues, `TICK_QUEUE` or `FEED_FAILURES`."""
        return f"{self.prefix}-x-{name}"

    def queue_arn(self, physical_name: str) -> str:
        """Return the ARN of an SQS queue."""
        return self.arn("sqs", physical_name)

    def queue_url(self, physical_name: str) -> str:
        """Return the URL of an SQS queue. Not for tokens: nothing in a template needs it.

        Raises:
            HostError: `partition_unknown`.
        """
        suffix = DOMAINS.get(self.partition)
        if suffix is None:
            raise HostError(
                f"AWS partition '{self.partition}' is not known, so the address of SQS there is not. Known are "
                f"{', '.join(DOMAINS)}. Take a newer version of iii-runtime.",
                code="partition_unknown",
            )
        return f"https://sqs.{self.region}.{suffix}/{self.account}/{physical_name}"

    def topic_name(self, topic: str, *, ordered: bool) -> str:
        """Return the name of the SNS topic behind a durable topic."""
        suffix = ".fifo" if ordered else ""
        return _fitted(f"{self.prefix}-t-", topic, _TOPIC_LENGTH - len(suffix)) + suffix

    def topic_arn(self, topic: str, *, ordered: bool) -> str:
        """Return the ARN of the SNS topic behind a durable topic."""
        return self.arn("sns", self.topic_name(topic, ordered=ordered))

    @property
    def progress_topic_arn(self) -> str:
        """ARN of the SNS topic on which every stream event is published."""
        return self.arn("sns", f"{self.prefix}-x-progress")

    def rule_name(self, job_id: str) -> str:
        """Return the name of the EventBridge rule or schedule of a cron job."""
        return _fitted(f"{self.prefix}-", job_id, 64, always_hashed=True)

    def _queue_name(self, kind: str, queue: QueueSpec) -> str:
        suffix = ".fifo" if queue.is_ordered else ""
        return _fitted(f"{self.prefix}-{kind}-", queue.name, _QUEUE_LENGTH - len(suffix)) + suffix


def partition_of(region: str) -> str:
    """Return the AWS partition of a region: `aws`, but for the sovereign and isolated ones."""
    return next((name for prefix, name in _SPECIAL_REGIONS.items() if region.startswith(prefix)), "aws")


def clashing_app_part(app: str) -> str | None:
    """Return the part of an app's name that would let its names fall under patterns of another app; None if none does.

    The queues of an app `shop-dev-q-x` would be among those that the functions of app `shop` may use in stage `dev`.
    """
    kinds = {"f", "q", "d", "t", "x"}
    return next((part for part in app.split("-")[1:] if part in kinds), None)


def deployed_length(text: str) -> int:
    """Return about how long a text is once CloudFormation has put account, region and partition into it."""
    return len(_TOKEN.sub("x" * _TOKEN_LENGTH, text).encode())


def slug(identity: str) -> str:
    """Return `identity` in the letters that names on AWS may have; two identities may come out alike."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", identity.replace("::", "--"))


def _fitted(prefix: str, identity: str, length: int, *, always_hashed: bool = False) -> str:
    name = prefix + slug(identity)
    if len(name) <= length and not always_hashed:
        return name
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH_LENGTH]
    return f"{name[: length - _HASH_LENGTH - 1]}-{digest}"
