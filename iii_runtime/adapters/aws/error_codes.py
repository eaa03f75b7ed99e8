"""The error codes of the AWS services, sorted: what a code says to whoever asked. See `failures` for what follows."""

from __future__ import annotations

from typing import Literal, TypeAlias

FailureKind: TypeAlias = Literal["retryable", "conflict", "permanent"]

TRANSACTION_CONFLICTS = frozenset({"TransactionConflictException", "TransactionConflict"})
"""Somebody else's transaction was at the same item."""


def sorted_code(code: str, text: str, status: int) -> tuple[FailureKind, str]:
    """Return what kind of failure an error is, and the code of the `StoreError` it becomes.

    Args:
        code: The service's own code, without a namespace.
        text: What the service says, for errors that share a code.
        status: HTTP status; 0 if there is none.
    """
    if code in _CONDITIONS or code in TRANSACTION_CONFLICTS:
        return "conflict", "store_conflict"
    if code in _LATER:
        return "permanent", "store_throttled"
    if code in _THROTTLES or status == 429:
        return "retryable", "store_throttled"
    if code in _TOO_LARGE or any(words in text for words in _TOO_LARGE_WORDS):
        return "permanent", "store_item_too_large"
    if code in _DENIED or status in {401, 403}:
        return "permanent", "store_denied"
    if code in _MISSING or status == 404:
        return "permanent", "store_missing"
    is_passing = code in _PASSING or status >= 500
    return "retryable" if is_passing else "permanent", "store_unavailable"


_CONDITIONS = frozenset({"ConditionalCheckFailedException", "ConditionalCheckFailed"})
_THROTTLES = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "KmsThrottled",
        "LimitExceededException",
        "OverLimit",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttled",
        "ThrottledException",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_LATER = frozenset({"PurgeQueueInProgress"})
"""Refused for so long that no repetition waits for it."""

_PASSING = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "TransactionInProgressException",
    }
)
_DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthorizationError",
        "AuthorizationErrorException",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "InvalidToken",
        "KmsAccessDenied",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "NotAuthorized",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "UnrecognizedClientException",
    }
)
_MISSING = frozenset(
    {
        "GoneException",
        "NoSuchBucket",
        "NoSuchKey",
        "NonExistentQueue",
        "NotFound",
        "NotFoundException",
        "QueueDoesNotExist",
        "ResourceNotFoundException",
        "TableNotFoundException",
    }
)
_TOO_LARGE = frozenset(
    {
        "BatchRequestTooLong",
        "EntityTooLarge",
        "ItemCollectionSizeLimitExceeded",
        "ItemCollectionSizeLimitExceededException",
        "PayloadTooLargeException",
        "RequestEntityTooLargeException",
        "RequestTooLargeException",
    }
)
_TOO_LARGE_WORDS = (
    "Item size has exceeded",  # DynamoDB, writing an item
    "Item size to update has exceeded",
    "the item has exceeded the maximum allowed size",  # in a transaction
    "Size of hashkey has exceeded",
    "Aggregated size of all range keys has exceeded",
    "Size of rangekey has exceeded",
    "Message must be shorter than",  # SQS
    "Message too long",  # SNS
)
