"""What IAM asks before a request is carried out: which action on which resource, and whether a role allows it.

Roles have statements that allow, and no others, so what no statement allows is refused. What AWS checks for a request
is written down here by AWS's documentation and by no code of the runtime. A request that is not in the list is an
error: say what AWS checks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from iii_runtime.plan.app_plan import AppPlan, Permission
from iii_runtime.plan.names import FEED_FAILURES, TICK_QUEUE, Deployment
from tests.aws.calls import Answered, Call, Reply, refuse
from tests.aws.cloud import WEBSOCKET_URL
from tests.aws.invocations import Invocation

_UNKNOWN_SUFFIX = "-AbCdEf"
"""Stands for the six characters that Secrets Manager puts behind a name."""

_PARTS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}
_MANAGEMENT = {"PostToConnection": "POST", "DeleteConnection": "DELETE", "GetConnection": "GET"}
_SQS = {
    **{f"{action}{batch}": action for action in ("SendMessage", "DeleteMessage") for batch in ("", "Batch")},
    **{f"ChangeMessageVisibility{batch}": "ChangeMessageVisibility" for batch in ("", "Batch")},
    **{action: action for action in ("ReceiveMessage", "GetQueueAttributes", "PurgeQueue")},
}


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """What a request needs: an action on a resource.

    Attributes:
        action: Such as `sqs:SendMessage`.
        resource: The ARN, without wildcards.
    """

    action: str
    resource: str

    def __str__(self) -> str:
        return f"{self.action} on {self.resource}"


@dataclass(frozen=True, slots=True)
class Role:
    """Statements that allow.

    Attributes:
        statements: Each with its actions, which are exact, and its resources; there `*` stands for any characters, and
            `?` for one.
    """

    statements: tuple[Permission, ...]

    def allows(self, need: Need) -> bool:
        """Return whether a statement allows it."""
        return any(True for _ in self.grants_of(need))

    def grants_of(self, need: Need) -> Iterator[Need]:
        """Yield the grants that allow it: each an action on a resource as a statement writes it."""
        for statement in self.statements:
            if need.action in statement.actions:
                for resource in statement.resources:
                    if _matches(resource, need.resource):
                        yield Need(need.action, resource)

    def grants(self) -> list[Need]:
        """Return every action on every resource that a statement writes."""
        return [
            Need(action, resource)
            for statement in self.statements
            for action in statement.actions
            for resource in statement.resources
        ]


def roles_of(plan: AppPlan) -> dict[str, Role]:
    """Return the roles of all Lambdas of an app, by the name of the Lambda, with what the constructs add.

    That is the right to write to connections and to close them; `tests/infra/test_roles.py` looks at the template.
    """
    names = plan.deployment
    connections = tuple(_connections(names, method) for method in ("POST", "DELETE"))
    added = Permission(
        actions=("execute-api:ManageConnections",), resources=connections, why="ids are made at run time"
    )
    writers = {names.system_name("feed"), names.system_name("websocket")}
    return {
        name: Role((*function.permissions, added) if name in writers else function.permissions)
        for name, function in plan.functions.items()
    }


def needs_of(call: Call, names: Deployment) -> list[Need]:
    """Return what AWS checks before it carries out a request.

    Raises:
        LookupError: Nobody has said what it checks.
    """
    check = _CHECKS.get(call.service)
    needs = [] if check is None else list(check(call, names))
    if not needs:
        raise LookupError(f"nobody has said what AWS checks for {call}")
    return needs


def needs_of_answer(call: Call, reply: Reply, names: Deployment) -> list[Need]:
    """Return what AWS has checked besides, to give this answer.

    Who may not list a bucket is told of no missing object: access is denied to it as to one that is there.
    """
    code = reply.get("Error", {}).get("Code")
    if call.service == "s3" and code == "NoSuchKey":
        return [Need("s3:ListBucket", _bucket(call, names))]
    return []


def needs_of_mappings(plan: AppPlan) -> dict[str, list[Need]]:
    """Return what Lambda itself does in the name of each Lambda, to take what its event source mappings hand over."""
    names = plan.deployment
    needs: dict[str, list[Need]] = {}
    sources = [(planned.consumer, planned.name) for planned in plan.queues.values()]
    sources.append((names.system_name("tick"), names.own_queue_name(TICK_QUEUE)))
    for function, queue in sources:
        needs.setdefault(function, []).extend(
            Need(f"sqs:{action}", names.queue_arn(queue))
            for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
        )
    stream = f"{names.table_arn}/stream/2026-01-01T00:00:00.000"
    needs[names.system_name("feed")] = [
        *(
            Need(f"dynamodb:{action}", stream)
            for action in ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
        ),
        Need("sqs:SendMessage", names.queue_arn(names.own_queue_name(FEED_FAILURES))),
    ]
    return needs


@dataclass(slots=True)
class Guard:
    """Lets through what the roles allow, and refuses everything else as AWS does.

    Attributes:
        names: The names of the app.
        roles: By the name of the Lambda.
        used: What was asked of each Lambda's role, and allowed.
        refused: What was asked of each Lambda's role, and refused, in order.
        answers: Answers to requests that are allowed, in place of the service's: the first that is no None.
    """

    names: Deployment
    roles: Mapping[str, Role]
    used: set[tuple[str, Need]] = field(default_factory=set)
    refused: list[tuple[str, Need]] = field(default_factory=list)
    answers: list[Callable[[Invocation, Call], Answered | None]] = field(default_factory=list)

    def before(self, invocation: Invocation, call: Call) -> Answered | None:
        """Check a request."""
        refused = [need for need in needs_of(call, self.names) if not self._check(invocation.function, need)]
        if refused:
            code = "AccessDenied" if call.service in {"s3", "sqs"} else "AccessDeniedException"
            text = f"User: {invocation.function} is not authorized to perform: {refused[0]}"
            return refuse(code, text, 403)
        return next((told for answer in self.answers if (told := answer(invocation, call)) is not None), None)

    def after(self, invocation: Invocation, call: Call, reply: Reply) -> None:
        """Check what the answer tells."""
        for need in needs_of_answer(call, reply, self.names):
            self._check(invocation.function, need)

    def ends(self, _invocation: Invocation) -> None:
        """Take no note."""

    def _check(self, function: str, need: Need) -> bool:
        is_allowed = self.roles[function].allows(need)
        if is_allowed:
            self.used.add((function, need))
        else:
            self.refused.append((function, need))
        return is_allowed


def guard_of(plan: AppPlan) -> Guard:
    """Return the guard of an app's roles."""
    return Guard(plan.deployment, roles_of(plan))


def _matches(pattern: str, resource: str) -> bool:
    return _compiled(pattern).fullmatch(resource) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."))


def _of_dynamodb(call: Call, names: Deployment) -> Iterable[Need]:
    asked = call.parameters
    match call.operation:
        case "GetItem" | "PutItem" | "UpdateItem" | "DeleteItem":
            yield _item(call.operation, asked["TableName"], names)
        case "Query":
            index = f"/index/{asked['IndexName']}" if "IndexName" in asked else ""
            yield _item("Query", f"{asked['TableName']}{index}", names)
        case "BatchGetItem":
            for table in asked["RequestItems"]:
                yield _item("BatchGetItem", table, names)
        case "TransactWriteItems":
            for part in asked["TransactItems"]:
                for kind, members in part.items():
                    yield _item(_PARTS[kind], members["TableName"], names)


def _item(action: str, table: str, names: Deployment) -> Need:
    return Need(f"dynamodb:{action}", names.arn("dynamodb", f"table/{table}"))


def _of_sqs(call: Call, names: Deployment) -> Iterable[Need]:
    if call.operation in _SQS:
        queue = str(call.parameters["QueueUrl"]).rsplit("/", 1)[-1]
        yield Need(f"sqs:{_SQS[call.operation]}", names.queue_arn(queue))


def _of_sns(call: Call, _names: Deployment) -> Iterable[Need]:
    if call.operation in {"Publish", "PublishBatch"}:
        yield Need("sns:Publish", str(call.parameters["TopicArn"]))


def _of_s3(call: Call, names: Deployment) -> Iterable[Need]:
    asked = call.parameters
    place = f"{_bucket(call, names)}/{asked.get('Key')}"
    match call.operation:
        case "GetObject" | "PutObjectTagging":
            yield Need(f"s3:{call.operation}", place)
        case "PutObject":
            yield Need("s3:PutObject", place)
            if "Tagging" in asked:
                yield Need("s3:PutObjectTagging", place)
        case "CopyObject":
            source = asked["CopySource"]
            copied = f"arn:{names.partition}:s3:::{source['Bucket']}/{source['Key']}"
            yield Need("s3:GetObject", copied)
            yield Need("s3:PutObject", place)
            # Without this directive the tags of the source are read and written.
            if asked.get("TaggingDirective") != "REPLACE":
                yield Need("s3:GetObjectTagging", copied)
            if asked.get("TaggingDirective") != "REPLACE" or "Tagging" in asked:
                yield Need("s3:PutObjectTagging", place)


def _bucket(call: Call, names: Deployment) -> str:
    return f"arn:{names.partition}:s3:::{call.parameters['Bucket']}"


def _of_lambda(call: Call, names: Deployment) -> Iterable[Need]:
    if call.operation == "Invoke":
        name = str(call.parameters["FunctionName"])
        yield Need("lambda:InvokeFunction", names.arn("lambda", f"function:{name}"))


def _of_connections(call: Call, names: Deployment) -> Iterable[Need]:
    if call.operation in _MANAGEMENT:
        pattern = _connections(names, _MANAGEMENT[call.operation])
        yield Need("execute-api:ManageConnections", pattern.replace("*", str(call.parameters["ConnectionId"])))


def _connections(names: Deployment, method: str) -> str:
    host, stage = WEBSOCKET_URL.removeprefix("https://").split("/")
    return names.arn("execute-api", f"{host.partition('.')[0]}/{stage}/{method}/@connections/*")


def _of_ssm(call: Call, names: Deployment) -> Iterable[Need]:
    if call.operation == "GetParameter":
        # A version or a label behind the name is no part of the resource.
        name = str(call.parameters["Name"])
        whole = name if name.startswith("arn:") else names.arn("ssm", f"parameter/{name.removeprefix('/')}")
        yield Need("ssm:GetParameter", ":".join(whole.split(":")[:6]))


def _of_secrets_manager(call: Call, names: Deployment) -> Iterable[Need]:
    if call.operation == "GetSecretValue":
        # Whatever it is called by, the resource is the whole ARN.
        name = str(call.parameters["SecretId"])
        whole = name if name.startswith("arn:") else names.arn("secretsmanager", f"secret:{name}{_UNKNOWN_SUFFIX}")
        yield Need("secretsmanager:GetSecretValue", whole)


_CHECKS: Mapping[str, Callable[[Call, Deployment], Iterable[Need]]] = {
    "apigatewaymanagementapi": _of_connections,
    "dynamodb": _of_dynamodb,
    "lambda": _of_lambda,
    "s3": _of_s3,
    "secretsmanager": _of_secrets_manager,
    "sns": _of_sns,
    "sqs": _of_sqs,
    "ssm": _of_ssm,
}
