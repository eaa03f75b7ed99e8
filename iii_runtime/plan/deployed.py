"""What the last deployment of a stage has made, as far as the next one must not change it unawares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal

from iii_runtime.core.errors import HostError
from iii_runtime.core.payload import Json
from iii_runtime.plan.app_plan import AppPlan, PlannedQueue
from iii_runtime.plan.findings import Finding, error, warning

DEPLOYED_FORMAT = 1

DEPLOYED_OUTPUT = "DeployedPlan"
"""Name of the stack outputs that carry a plan, each a part of it; from the second on they are numbered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedQueue:
    """A queue as it was deployed.

    Attributes:
        type: Of the SQS queue; one with `concurrency: 1` is a FIFO queue, whatever its `type` in the configuration.
        stack: Number of its stack.
    """

    type: Literal["standard", "fifo"]
    stack: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedPlan:
    """The parts of a deployment that cannot be changed in place. `cdk deploy` leaves it as a file to commit.

    Attributes:
        app: The app.
        stage: The stage.
        stacks: Over how many stacks new functions were spread.
        queues: The queues, by the runtime's name.
        functions: Number of each function's stack, by its id. A function stays there, also when `stacks` has changed.
    """

    app: str
    stage: str
    stacks: int
    queues: Mapping[str, DeployedQueue]
    functions: Mapping[str, int]


def deployed_file(stage: str) -> PurePosixPath:
    """Return where the file of a stage is, from the root of the project."""
    return PurePosixPath("deployed", f"{stage}.json")


def deployed_plan(plan: AppPlan) -> DeployedPlan:
    """Return what is to be remembered of a plan once it is deployed."""
    return DeployedPlan(
        app=plan.deployment.app,
        stage=plan.deployment.stage,
        stacks=plan.stage.stacks,
        queues={
            name: DeployedQueue(type=_type_of(queue), stack=queue.stack) for name, queue in sorted(plan.queues.items())
        },
        functions={
            each.function_id: each.stack
            for each in sorted(plan.functions.values(), key=lambda each: each.name)
            if each.function_id is not None
        },
    )


def deployed_to_json(deployed: DeployedPlan) -> dict[str, Json]:
    """Return the stored form."""
    return {
        "format": DEPLOYED_FORMAT,
        "app": deployed.app,
        "stage": deployed.stage,
        "stacks": deployed.stacks,
        "queues": {name: {"type": queue.type, "stack": queue.stack} for name, queue in deployed.queues.items()},
        "functions": dict(deployed.functions),
    }


def deployed_to_text(deployed: DeployedPlan) -> str:
    """Return the stored form as the text of the outputs, in one piece."""
    return json.dumps(deployed_to_json(deployed), separators=(",", ":"), sort_keys=True)


def deployed_from_json(stored: object) -> DeployedPlan:
    """Return what `deployed_to_json` stored, from the JSON of the file, whatever that is.

    Raises:
        HostError: `deployed_unreadable`: it was written by another version, or is damaged.
    """
    if not isinstance(stored, Mapping) or stored.get("format") != DEPLOYED_FORMAT:
        raise _unreadable(f"this version reads format {DEPLOYED_FORMAT}")
    try:
        return DeployedPlan(
            app=_text(stored["app"]),
            stage=_stage(stored["stage"]),
            stacks=_number(stored["stacks"]),
            queues={
                name: DeployedQueue(type=_queue_type(queue["type"]), stack=_number(queue["stack"]))
                for name, queue in stored["queues"].items()
            },
            functions={name: _number(stack) for name, stack in stored["functions"].items()},
        )
    except (LookupError, TypeError, ValueError, AttributeError) as damage:
        raise _unreadable(repr(damage)[:200]) from damage


def compare_with_deployed(plan: AppPlan, previous: DeployedPlan) -> Iterator[Finding]:
    """Yield what this plan would destroy of the last deployment."""
    file = str(deployed_file(previous.stage))
    if (previous.app, previous.stage) != (plan.deployment.app, plan.deployment.stage):
        yield error(
            file,
            f"it tells of app '{previous.app}' in stage {previous.stage}, and this is app '{plan.deployment.app}' in "
            f"stage {plan.deployment.stage}, which would be deployed beside it under other names. Set `app` of iii-aws "
            "back; or move the file away, and destroy the old deployment when it has run empty.",
        )
        return
    yield from _compare_stacks(plan, previous)
    for name, known in previous.queues.items():
        queue = plan.queues.get(name)
        if queue is None:
            yield warning(file, _removed(name, is_kept=plan.stage.production))
        elif known.type != _type_of(queue):
            yield error(queue.source, _changed_type(name, known, queue))
        elif known.stack != queue.stack:
            yield error(
                queue.source,
                f"queue '{name}' would move from stack {known.stack} to stack {queue.stack}, because another Lambda "
                "takes its messages now, and those it has would be lost. Bind it to the function it was bound to, or "
                "declare a queue with another name.",
            )


def _compare_stacks(plan: AppPlan, previous: DeployedPlan) -> Iterator[Finding]:
    highest = plan.stack_count - 1
    beyond = sorted(
        function.function_id
        for function in plan.functions.values()
        if function.function_id is not None and previous.functions.get(function.function_id, 0) > highest
    )
    if beyond:
        named = ", ".join(f"'{function_id}'" for function_id in beyond[:3]) + (", ..." if len(beyond) > 3 else "")
        count = "1 function is" if len(beyond) == 1 else f"{len(beyond)} functions are"
        yield error(
            str(deployed_file(previous.stage)),
            f"{count} in stacks that `stacks: {plan.stage.stacks}` no longer has ({named}). Set `stacks` of iii-aws to "
            f"{previous.stacks} or more.",
        )


def _removed(name: str, *, is_kept: bool) -> str:
    gone = f"queue '{name}' of the last deployment is gone from the app. Deploy when it has run empty: "
    if is_kept:
        return (
            f"{gone}in production AWS keeps it, with what it still has and without a consumer, until you delete it "
            "and its dead-letter queue by hand. While they are there, a queue of that name cannot be deployed again."
        )
    return f"{gone}AWS deletes it, with its messages and dead letters."


def _changed_type(name: str, known: DeployedQueue, queue: PlannedQueue) -> str:
    why = " (its `concurrency` of 1 makes it one)" if queue.spec.is_ordered and queue.spec.kind == "standard" else ""
    return (
        f"queue '{name}' was deployed as a {known.type} queue and would become a {_type_of(queue)} queue{why}: it "
        "would be replaced, and the messages it has would be lost. Declare a queue with another name, deploy, and "
        "remove this one when it has run empty."
    )


def _type_of(queue: PlannedQueue) -> Literal["standard", "fifo"]:
    return "fifo" if queue.spec.is_ordered else "standard"


def _queue_type(value: object) -> Literal["standard", "fifo"]:
    if value == "standard":
        return "standard"
    if value == "fifo":
        return "fifo"
    raise ValueError(f"queue type {value!r:.40}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is expected, found {value!r:.40}")
    return value


def _stage(value: object) -> str:
    # It becomes the name of a file.
    if not isinstance(value, str) or not value.isalnum():
        raise TypeError(f"the name of a stage is expected, found {value!r:.40}")
    return value


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TypeError(f"a number is expected, found {value!r:.40}")
    return value


def _unreadable(what: str) -> HostError:
    return HostError(
        f"what is deployed cannot be read from it: {what}. Restore it from version control.",
        code="deployed_unreadable",
    )
