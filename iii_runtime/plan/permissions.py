"""What each Lambda's role may do, statement by statement. A resource that is a pattern says why.

The log group's statement is added with the group, and `execute-api:ManageConnections` with the API whose id it needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from iii_runtime.core.function_options import QUEUE_USE, TOPIC_USE
from iii_runtime.core.http import UNKEYED_METHODS
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.registry import FunctionSpec
from iii_runtime.core.triggers import Http, OnState, OnStream, Subscribe
from iii_runtime.plan.app_plan import Permission
from iii_runtime.plan.basis import Basis
from iii_runtime.plan.names import FEED_FAILURES, LETTERS_INDEX, NAMES_INDEX, TICK_QUEUE, Deployment, deployed_length
from iii_runtime.plan.sqs import is_ordered_topic

SEND, INVOKE, PUBLISH = "sqs:SendMessage", "lambda:InvokeFunction", "sns:Publish"
COUNT, HIDE = "sqs:GetQueueAttributes", "sqs:ChangeMessageVisibility"

POLL = ("sqs:ReceiveMessage", "sqs:DeleteMessage", COUNT)
"""What an event source mapping does with a queue, in the name of its Lambda."""

WRITE = ("PutItem", "UpdateItem", "DeleteItem")

ANY_TARGET = (
    "The function names its targets when it runs, and has no `uses` to say which; all are of this app and stage."
)
ANY_COUNT = "The function may ask how many messages and dead letters any queue of this app and stage has."
ANY_OBJECT = "Objects get their keys at run time; the prefix is one kind of object of this app and stage."
ANY_FUNCTION = "A message may name any function of this app and stage."
ANY_LETTERS = "It looks after the dead letters of every queue of this app and stage."
ANY_REQUEST = "It carries out what the command line asks for, which may be about anything of this app and stage."
ARN_SUFFIX = "Secrets Manager ends the ARN of a secret with six characters of its own."
STREAM_LABEL = "The ARN of a table's stream ends with the time at which it was made."
TRACES = "X-Ray knows no resources."

_SUFFIX = re.compile(r"-[A-Za-z0-9]{6}$")
_ANY_SUFFIX = "-??????"
_ARN_PARTS = 6
"""Of the ARN of a parameter, whose name has no colon."""


def function_permissions(basis: Basis, function: FunctionSpec) -> tuple[Permission, ...]:
    """Return what the Lambda of a registered function may do; the conditions of its triggers run in it too.

    State, streams and dead letters are open to every function. It may not empty a queue, nor take messages of one that
    it does not consume: these are left to the command line.
    """
    names, members = basis.deployment, [function, *basis.conditions(function.id)]
    return _present(
        _items(names, "GetItem", "BatchGetItem", "Query", *WRITE),
        _indexes(names, NAMES_INDEX, LETTERS_INDEX),
        *_blobs(names, "payloads", "state", *(("responses",) if _keeps_responses(basis, function) else ())),
        *(_any_target(names) if _may_use_anything(members) else _exact_targets(basis, members)),
        *_consume(basis, basis.queues_of(function.id)),
        *_secrets(names, members),
        *_tracing(basis),
    )


def dispatcher_permissions(basis: Basis) -> tuple[Permission, ...]:
    """Return what the dispatcher may do: take messages of its queues, and run any function."""
    names = basis.deployment
    return _present(
        _items(names, "GetItem", "UpdateItem"),
        *_blobs(names, "payloads"),
        _allow((INVOKE,), (names.function_pattern,), why=ANY_FUNCTION),
        *_consume(basis, basis.queues_of(None)),
        *_tracing(basis),
    )


def control_permissions(basis: Basis) -> tuple[Permission, ...]:
    """Return what the Lambda behind the command line may do."""
    names = basis.deployment
    return _present(
        _items(names, "GetItem", "BatchGetItem", "Query", *WRITE),
        _indexes(names, NAMES_INDEX, LETTERS_INDEX),
        *_blobs(names, "payloads", "state"),
        _allow((SEND, COUNT, "sqs:PurgeQueue"), (names.queue_pattern,), why=ANY_REQUEST),
        _allow((SEND, *POLL, HIDE), (names.letter_pattern,), why=ANY_REQUEST),
        _allow((INVOKE,), (names.function_pattern,), why=ANY_REQUEST),
        _allow((PUBLISH,), (names.topic_pattern,), why=ANY_REQUEST),
        *_tracing(basis),
    )


def tick_permissions(basis: Basis, function_ids: Iterable[str]) -> tuple[Permission, ...]:
    """Return what the minute tick may do: start these functions, and look after dead letters."""
    names, started = basis.deployment, _arns(basis.deployment, function_ids)
    own = (names.queue_arn(names.own_queue_name(TICK_QUEUE)),)
    return _present(
        _items(names, "GetItem", "UpdateItem"),
        _indexes(names, LETTERS_INDEX),
        *_blobs(names, "payloads"),
        _allow(POLL, own),
        _allow((SEND, HIDE), own if started else ()),
        _allow((SEND, *POLL, HIDE), (names.letter_pattern,), why=ANY_LETTERS),
        _allow((INVOKE,), started),
        *_tracing(basis),
    )


def feed_permissions(basis: Basis) -> tuple[Permission, ...]:
    """Return what the change feed may do: read the table's stream, publish, and start functions with such triggers."""
    names = basis.deployment
    triggered = _arns(names, (trigger.function_id for trigger in basis.triggers(OnState, OnStream)))
    stream = ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
    return _present(
        _items(names, "GetItem", "Query", "UpdateItem", "DeleteItem"),
        _allow(tuple(f"dynamodb:{each}" for each in stream), (f"{names.table_arn}/stream/*",), why=STREAM_LABEL),
        # What it hands to a function may be large; no result comes back.
        _allow(("s3:PutObject",), (f"{names.bucket_arn}/payloads/*",) if triggered else (), why=ANY_OBJECT),
        _find_objects(names),
        _read_state(names),
        _allow((SEND,), (names.queue_arn(names.own_queue_name(FEED_FAILURES)),)),
        _allow((PUBLISH,), (names.progress_topic_arn,)),
        _allow((INVOKE,), triggered),
        *_tracing(basis),
    )


def websocket_permissions(basis: Basis) -> tuple[Permission, ...]:
    """Return what the WebSocket's Lambda may do: keep connections, and read streams."""
    names = basis.deployment
    return _present(
        _items(names, "GetItem", "Query", "ConditionCheckItem", *WRITE),
        _read_state(names),
        _find_objects(names),
        *_tracing(basis),
    )


def policy_characters(permissions: Iterable[Permission]) -> int:
    """Return about how long the policy document with these statements is; IAM counts no white space."""
    statements = [
        {"Action": each.actions, "Effect": "Allow", "Resource": each.resources, "Sid": ""} for each in permissions
    ]
    return deployed_length(json.dumps(statements, separators=(",", ":")))


def _keeps_responses(basis: Basis, function: FunctionSpec) -> bool:
    """Return whether a route of the function takes an `Idempotency-Key`."""
    return any(
        trigger.function_id == function.id
        and isinstance(trigger.kind, Http)
        and trigger.kind.method.upper() not in UNKEYED_METHODS
        for trigger in basis.triggers(Http)
    )


def _may_use_anything(members: Iterable[FunctionSpec]) -> bool:
    return any(member.options.uses is None for member in members)


def _any_target(names: Deployment) -> list[Permission]:
    return [
        _allow((SEND, COUNT), (names.queue_pattern,), why=ANY_TARGET),
        _allow((COUNT,), (names.letter_pattern,), why=ANY_COUNT),
        _allow((INVOKE,), (names.function_pattern,), why=ANY_TARGET),
        _allow((PUBLISH,), (names.topic_pattern,), why=ANY_TARGET),
    ]


def _exact_targets(basis: Basis, members: Iterable[FunctionSpec]) -> list[Permission]:
    """Return one statement for each kind of target in `uses`; what is not there is a finding of the checks."""
    names = basis.deployment
    uses = [use for member in members for use in member.options.uses or ()]
    queues = [basis.queues[name] for name in _named(uses, QUEUE_USE) if name in basis.config.queues]
    topics = _named(uses, TOPIC_USE)
    durable = [topic for topic in topics if any(queue.topic == topic for queue in basis.queues.values())]
    # A message of `publish` goes straight to the Lambdas of the subscribers.
    heard = [
        t.function_id for t in basis.triggers(Subscribe) if isinstance(t.kind, Subscribe) and t.kind.topic in topics
    ]
    functions = [use for use in uses if use in basis.catalog.functions]
    return [
        _allow((SEND, COUNT), tuple(names.queue_arn(names.queue_name(queue)) for queue in queues)),
        _allow((COUNT,), tuple(names.queue_arn(names.letter_queue_name(queue)) for queue in queues)),
        _allow((INVOKE,), _arns(names, (*functions, *heard))),
        _allow((PUBLISH,), tuple(names.topic_arn(each, ordered=is_ordered_topic(basis, each)) for each in durable)),
    ]


def _named(uses: Iterable[str], prefix: str) -> list[str]:
    return list(dict.fromkeys(use.removeprefix(prefix) for use in uses if use.startswith(prefix)))


def _consume(basis: Basis, queues: Sequence[QueueSpec]) -> list[Permission]:
    """Return what the consumer of some queues needs.

    It sends to an ordered queue of its own what has come back under the wrong group, and passes on what is for another
    function.
    """
    names = basis.deployment
    own = tuple(names.queue_arn(names.queue_name(queue)) for queue in queues)
    ordered = tuple(names.queue_arn(names.queue_name(queue)) for queue in queues if queue.is_ordered)
    letters = tuple(names.queue_arn(names.letter_queue_name(queue)) for queue in queues)
    passes_on = any(queue.topic is None and not queue.is_shared for queue in queues)
    return [
        _allow((*POLL, HIDE), own),
        _allow((SEND,), (*ordered, *letters)),
        _allow((INVOKE,), (names.system_arn("dispatcher"),) if passes_on else ()),
    ]


def _items(names: Deployment, *actions: str) -> Permission:
    """Return the right to these actions on items. A transaction needs those of its parts."""
    return _allow(tuple(f"dynamodb:{action}" for action in actions), (names.table_arn,))


def _indexes(names: Deployment, *indexes: str) -> Permission:
    return _allow(("dynamodb:Query",), tuple(f"{names.table_arn}/index/{index}" for index in indexes))


def _blobs(names: Deployment, *prefixes: str) -> list[Permission]:
    places = tuple(f"{names.bucket_arn}/{prefix}/*" for prefix in prefixes)
    replaced = tuple(place for place in places if place.endswith("/state/*"))
    return [
        _allow(("s3:GetObject", "s3:PutObject"), places, why=ANY_OBJECT),
        _allow(("s3:PutObjectTagging",), replaced, why=ANY_OBJECT),
        _find_objects(names),
    ]


def _read_state(names: Deployment) -> Permission:
    return _allow(("s3:GetObject",), (f"{names.bucket_arn}/state/*",), why=ANY_OBJECT)


def _find_objects(names: Deployment) -> Permission:
    # Without it S3 answers "access denied" for an object that is not there.
    return _allow(("s3:ListBucket",), (names.bucket_arn,))


def _secrets(names: Deployment, members: Iterable[FunctionSpec]) -> list[Permission]:
    """Return the right to read these secrets alone. A KMS key of one's own that encrypts them is granted beside it."""
    sources = [source.partition(":") for member in members for source in member.options.secrets.values()]
    parameters = dict.fromkeys(
        _parameter_arn(names, filled(name, names.stage)) for kind, _, name in sources if kind == "ssm"
    )
    secrets = dict.fromkeys(
        _secret_arn(names, filled(name, names.stage)) for kind, _, name in sources if kind == "secretsmanager"
    )
    by_name = tuple(arn for arn in secrets if arn.endswith(_ANY_SUFFIX))
    return [
        _allow(("ssm:GetParameter",), tuple(parameters)),
        _allow(("secretsmanager:GetSecretValue",), tuple(arn for arn in secrets if arn not in by_name)),
        _allow(("secretsmanager:GetSecretValue",), by_name, why=ARN_SUFFIX),
    ]


def filled(source: str, stage: str) -> str:
    """Return the source of a secret with the stage's name filled in."""
    return source.replace("{stage}", stage)


def _parameter_arn(names: Deployment, name: str) -> str:
    """Return the ARN of a parameter; the version or label that may stand behind its name is none of it."""
    if name.startswith("arn:"):
        return ":".join(name.split(":")[:_ARN_PARTS])
    return names.arn("ssm", f"parameter/{name.partition(':')[0].removeprefix('/')}")


def _secret_arn(names: Deployment, name: str) -> str:
    """Return the ARN of a secret, as a pattern where its last six characters are not known."""
    arn = name if name.startswith("arn:") else names.arn("secretsmanager", f"secret:{name}")
    return arn if arn == name and _SUFFIX.search(arn) else arn + _ANY_SUFFIX


def _tracing(basis: Basis) -> list[Permission]:
    actions = ("xray:PutTraceSegments", "xray:PutTelemetryRecords")
    return [_allow(actions, ("*",), why=TRACES)] if basis.stage.tracing else []


def _arns(names: Deployment, function_ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(names.function_arn, function_ids)))


def _allow(actions: tuple[str, ...], resources: tuple[str, ...], *, why: str | None = None) -> Permission:
    return Permission(actions=actions, resources=resources, why=why)


def _present(*permissions: Permission) -> tuple[Permission, ...]:
    """Return the statements that are about something."""
    return tuple(each for each in permissions if each.resources)
