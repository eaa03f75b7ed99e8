"""The writes of a run's record in DynamoDB's own language: for each what it changes, and under which condition.

The conditions are those of `core.runs.transitions`, which also tells what a refused write means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iii_runtime.adapters.aws.attributes import Value
from iii_runtime.adapters.aws.run_item import OPEN, expiry, inbox_value, wake_shard
from iii_runtime.adapters.aws.table import Expression
from iii_runtime.core.runs.record import MAX_INBOX, InboxItem, RunRecord
from iii_runtime.core.runs.writes import Closing, Held, Lease

IS_NEW = Expression(text="attribute_not_exists(pk)")

_FREE = "((attribute_exists(lu) AND lu < :now) OR (attribute_not_exists(lu) AND wa <= :now))"
_HELD = "st = :run AND rid = :rid AND ep = :ep AND js = :js AND attribute_exists(lu)"
_QUIET = "size(ib) = :k"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordWrite:
    """One update of a record.

    Attributes:
        change: What it changes.
        condition: What must hold.
    """

    change: Expression
    condition: Expression


def acquire(workflow_id: str, lease: Lease, now_ms: int, *, is_redelivery: bool) -> RecordWrite:
    """Take a run that is free."""
    change = _Change(adds={"ep": 1, "ac": 1}, sets={"lu": lease.until_ms, "own": lease.owner}, removes=["why"])
    if is_redelivery:
        change.defaults |= {"wa": lease.until_ms, "ws": wake_shard(workflow_id)}
    return _write(change, f"st = :run AND {_FREE}", {":now": now_ms})


def guard(record: RunRecord) -> RecordWrite:
    """Make the end of the lease the wake."""
    change = _Change(sets={"ws": wake_shard(record.workflow_id)}, copies={"wa": "lu"})
    text = "st = :run AND rid = :rid AND attribute_exists(lu) AND attribute_not_exists(wa)"
    return _write(change, text, {":rid": record.run_id})


def append(held: Held, facts: Sequence[str], *, lease_until_ms: int, guard: bool, chunked: bool) -> RecordWrite:
    """Add facts and renew the lease; with `chunked` the tail was stored as a chunk, and begins anew."""
    change = _grown(held, facts, chunked=chunked) if facts else _Change()
    change.sets["lu"] = lease_until_ms
    if guard:
        change.defaults |= {"wa": lease_until_ms, "ws": wake_shard(held.workflow_id)}
    return _write(change, _HELD, _held_values(held))


def suspend(held: Held, facts: Sequence[str], wake_at_ms: int | None, *, chunked: bool) -> RecordWrite:
    """Add facts and give the run back."""
    change = _grown(held, facts, chunked=chunked)
    change.removes += ["own", "lu"]
    _set_wake(change, held.workflow_id, wake_at_ms)
    return _write(change, f"{_HELD} AND {_QUIET}", {**_held_values(held), ":k": held.taken})


def close(held: Held, facts: Sequence[str], closing: Closing, *, chunked: bool) -> RecordWrite:
    """Add the last facts and end the run."""
    change = _grown(held, facts, chunked=chunked)
    _end(change, held.workflow_id, closing)
    return _write(change, f"{_HELD} AND {_QUIET}", {**_held_values(held), ":k": held.taken})


def park(held: Held, reason: str) -> RecordWrite:
    """Give the run back without a wake."""
    change = _Change(sets={"why": reason, "ac": 0}, removes=["own", "lu", "wa", "ws"])
    return _write(change, f"{_HELD} AND {_QUIET}", {**_held_values(held), ":k": held.taken})


def resume(workflow_id: str, now_ms: int) -> RecordWrite:
    """Make a parked run due."""
    change = _Change(sets={"ac": 0}, removes=["why"])
    _set_wake(change, workflow_id, now_ms)
    return _write(change, "st = :run AND attribute_exists(why)", {})


def deliver(workflow_id: str, item: InboxItem, now_ms: int, *, run_id: str | None) -> RecordWrite:
    """Append an item to the inbox of an open run, and make its wake due."""
    change = _Change(appends={"ib": [inbox_value(item)]})
    _set_wake(change, workflow_id, now_ms)
    text, values = _of_run("st = :run AND size(ib) < :most", run_id)
    if item.kind == "cancel":
        change.sets["cx"] = now_ms
        text += " AND attribute_not_exists(cx)"
    return _write(change, text, {**values, ":most": MAX_INBOX})


def terminate(workflow_id: str, closing: Closing, *, run_id: str | None) -> RecordWrite:
    """End an open run, whoever holds it; the new epoch is nobody's."""
    change = _Change(adds={"ep": 1})
    _end(change, workflow_id, closing)
    text, values = _of_run("st = :run", run_id)
    return _write(change, text, values)


def finish_duties(record: RunRecord) -> RecordWrite:
    """Forget the duties of a closed run."""
    change = _Change(removes=["du", "wa", "ws"])
    return _write(change, "rid = :rid AND st <> :run AND attribute_exists(du)", {":rid": record.run_id})


def replaceable(old: RunRecord) -> Expression:
    """Return the condition under which a closed run gives way to another one."""
    return Expression(
        text="rid = :rid AND st <> :run AND ep = :ep AND attribute_not_exists(du)",
        values={":rid": old.run_id, ":run": OPEN, ":ep": old.epoch},
    )


@dataclass(slots=True, kw_only=True)
class _Change:
    """The parts of an update expression, by attribute.

    Attributes:
        sets: New values.
        adds: What is added to numbers.
        defaults: Values where there are none.
        appends: What is put behind a list.
        copies: Attributes whose value another one gets.
        removes: Attributes and elements that go.
    """

    sets: dict[str, Value] = field(default_factory=dict)
    adds: dict[str, int] = field(default_factory=dict)
    defaults: dict[str, Value] = field(default_factory=dict)
    appends: dict[str, list[Value]] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    removes: list[str] = field(default_factory=list)

    def expression(self) -> Expression:
        """Return it in DynamoDB's language; the placeholder of an attribute's value is `:c_` and its name."""
        parts = [
            *(f"{_named(name)} = :c_{name}" for name in self.sets),
            *(f"{name} = {name} + :c_{name}" for name in self.adds),
            *(f"{name} = if_not_exists({name}, :c_{name})" for name in self.defaults),
            *(f"{name} = list_append({name}, :c_{name})" for name in self.appends),
            *(f"{name} = {other}" for name, other in self.copies.items()),
        ]
        text = f"SET {', '.join(parts)}" if parts else ""
        if self.removes:
            text += f" REMOVE {', '.join(self.removes)}"
        values: dict[str, Value] = {**self.sets, **self.adds, **self.defaults, **self.appends}
        return Expression(
            text=text.strip(),
            names={"#ttl": "ttl"} if "ttl" in self.sets else {},
            values={f":c_{name}": value for name, value in values.items()},
        )


def _named(name: str) -> str:
    return "#ttl" if name == "ttl" else name  # the one of these names that DynamoDB reserves


def _write(change: _Change, condition: str, values: Mapping[str, Value]) -> RecordWrite:
    known = {":run": OPEN, **values}
    return RecordWrite(change=change.expression(), condition=Expression(text=condition, values=known))


def _held_values(held: Held) -> dict[str, Value]:
    return {":rid": held.run_id, ":ep": held.epoch, ":js": held.sequence}


def _of_run(text: str, run_id: str | None) -> tuple[str, dict[str, Value]]:
    return (text, {}) if run_id is None else (f"{text} AND rid = :rid", {":rid": run_id})


def _grown(held: Held, facts: Sequence[str], *, chunked: bool) -> _Change:
    """Return what changes by new facts: they are progress, and what was taken leaves the inbox."""
    change = _Change(sets={"ac": 0}, removes=[f"ib[{index}]" for index in range(held.taken)])
    if chunked:
        change.sets["jt"] = [*facts]
        change.adds["jc"] = 1
    elif facts:
        change.appends["jt"] = [*facts]
    if facts:
        change.adds["js"] = len(facts)
    return change


def _end(change: _Change, workflow_id: str, closing: Closing) -> None:
    change.sets |= {
        "st": closing.status,
        "res": closing.outcome,
        "cl": closing.at_ms,
        "ttl": expiry(closing.at_ms),
    }
    change.removes += ["own", "lu", "why"]
    if closing.duties:
        change.sets["du"] = [*closing.duties]
    _set_wake(change, workflow_id, closing.at_ms if closing.duties else None)


def _set_wake(change: _Change, workflow_id: str, wake_at_ms: int | None) -> None:
    if wake_at_ms is None:
        change.removes += ["wa", "ws"]
    else:
        change.sets |= {"wa": wake_at_ms, "ws": wake_shard(workflow_id)}
