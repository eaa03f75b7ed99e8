"""Counts what handlers ask of AWS, and what AWS charges for it: units of DynamoDB, chunks of SQS, invocations.

What an event source mapping costs besides is counted with it: a receive and a delete for each batch. Reading the stream
of a table, and the delivery from SNS to SQS, are free.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.aws.calls import Answered, Call, Reply, watched_by
from tests.aws.cloud import Cloud
from tests.aws.invocations import Invocation
from tests.aws.prices import prices

_CHUNK = 64 * 1024
_WRITE_UNIT, _READ_UNIT = 1024, 4096
_WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem"})
_INDEX_KEYS = (("nk", "nr"), ("dq", "dt"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Charged:
    """A request of a handler, and what it is charged as.

    Attributes:
        function: Name of the Lambda that asked.
        call: What it asked.
        bought: What AWS charges.
    """

    function: str
    call: Call
    bought: Counter[str]

    @property
    def cost(self) -> float:
        """What it costs."""
        return prices().of(self.bought)


@dataclass(slots=True)
class Counting:
    """Sees every request of every handler.

    Attributes:
        cloud: Where items are looked at, to know their size.
        charged: Every request, in order.
        invocations: Names of the Lambdas that were invoked, in order.
    """

    cloud: Cloud
    charged: list[Charged] = field(default_factory=list)
    invocations: list[str] = field(default_factory=list)
    _before: dict[int, dict[str, Any] | None] = field(default_factory=dict)
    _seen: set[str] = field(default_factory=set)

    def before(self, invocation: Invocation, call: Call) -> Answered | None:
        """Look at the item that a write is about to change."""
        self._begin(invocation)
        if call.operation in _WRITES:
            self._before[id(invocation)] = self._item(call)
        return None

    def after(self, invocation: Invocation, call: Call, reply: Reply) -> None:
        """Charge a request."""
        bought = self._bought(invocation, call, reply)
        self.charged.append(Charged(function=invocation.function, call=call, bought=bought))

    def ends(self, invocation: Invocation) -> None:
        """Count an invocation that asked nothing."""
        self._begin(invocation)

    def calls_of(self, function: str) -> list[str]:
        """Return what a Lambda asked of AWS, in order."""
        return [str(one.call) for one in self.charged if one.function == function]

    def _begin(self, invocation: Invocation) -> None:
        if invocation.aws_request_id not in self._seen:
            self._seen.add(invocation.aws_request_id)
            self.invocations.append(invocation.function)

    def _bought(self, invocation: Invocation, call: Call, reply: Reply) -> Counter[str]:
        match call.service:
            case "dynamodb":
                return self._units(invocation, call, reply)
            case "sqs":
                return Counter({_sqs_kind(call): _chunks(call)})
            case "sns":
                return Counter({"sns_publish": _chunks(call)})
            case "s3":
                return Counter({"s3_put" if call.operation == "PutObject" else "s3_get": 1})
            case "apigatewaymanagementapi":
                return Counter({"websocket_message": 1})
            case "lambda":
                return Counter()  # the invocation is charged as such
        raise LookupError(f"nobody has said what {call} costs")

    def _units(self, invocation: Invocation, call: Call, reply: Reply) -> Counter[str]:
        if call.operation in _WRITES:
            old, new = self._before.pop(id(invocation), None), self._item(call)
            units = max(1, math.ceil(max(_size(old), _size(new)) / _WRITE_UNIT))
            return Counter({"dynamodb_write_unit": units + _index_writes(old, new)})
        if call.operation == "GetItem":
            units = max(1, math.ceil(_size(reply.get("Item")) / _READ_UNIT))
            return Counter({"dynamodb_read_unit": _half(units, call)})
        if call.operation == "Query":
            size = sum(_size(item) for item in reply["Items"])
            return Counter({"dynamodb_read_unit": _half(max(1, math.ceil(size / _READ_UNIT)), call)})
        raise LookupError(f"nobody has said what {call} costs")

    def _item(self, call: Call) -> dict[str, Any] | None:
        given = call.parameters.get("Key") or call.parameters["Item"]
        with watched_by(None):
            return self.cloud.item({name: given[name]["S"] for name in ("pk", "sk")})


def bought_by_mappings(batches: Mapping[str, int], fifo: frozenset[str]) -> Counter[str]:
    """Return what the event source mappings of queues are charged: a receive and a delete for each batch.

    Args:
        batches: How many batches each queue had.
        fifo: The FIFO queues among them.
    """
    bought: Counter[str] = Counter()
    for queue, count in batches.items():
        bought["sqs_fifo_request" if queue in fifo else "sqs_standard_request"] += 2 * count
    return bought


def _half(units: int, call: Call) -> Any:
    return units if call.parameters.get("ConsistentRead") else units / 2


def _sqs_kind(call: Call) -> str:
    return "sqs_fifo_request" if str(call.parameters["QueueUrl"]).endswith(".fifo") else "sqs_standard_request"


def _chunks(call: Call) -> int:
    size = len(json.dumps(call.parameters, default=str))
    return max(1, math.ceil(size / _CHUNK))


def _size(item: Mapping[str, Any] | None) -> int:
    """Return the size of an item as DynamoDB counts it: names and values, 3 bytes for a map and 1 for each member."""
    return 0 if item is None else sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: Mapping[str, Any]) -> int:
    [(kind, content)] = value.items()
    if kind == "M":
        return 3 + sum(1 + len(name.encode()) + _value_size(one) for name, one in content.items())
    if kind == "L":
        return 3 + sum(1 + _value_size(one) for one in content)
    if kind in {"BOOL", "NULL"}:
        return 1
    if kind == "N":
        return math.ceil(len(content.lstrip("-").replace(".", "")) / 2) + 1
    return len(content.encode() if isinstance(content, str) else content)


def _index_writes(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> int:
    """Return how many entries of indexes a write adds or removes. Keys that stay cost nothing."""
    count = 0
    for keys in _INDEX_KEYS:
        before, after = _entry(old, keys), _entry(new, keys)
        if before != after:
            count += (before is not None) + (after is not None)
    return count


def _entry(item: Mapping[str, Any] | None, keys: tuple[str, str]) -> tuple[Any, Any] | None:
    return (item[keys[0]], item[keys[1]]) if item is not None and all(key in item for key in keys) else None
