"""What the last deployment of a stage has made, as far as the next one must not change it unawares."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

from iii_runtime.core.errors import HostError
from iii_runtime.core.payload import Json
from iii_runtime.plan.app_plan import CORE_STACK, AppPlan, PlannedQueue
from iii_runtime.plan.findings import Finding, error, warning
from iii_runtime.plan.names import Deployment

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
        routes: Number of the stack of each route that is not in the core stack, by its shape. Files of earlier versions
            have none.
        home: Where the outputs of the deployment were, as `home_of` says; empty if that is not known.
        source: The file it was read from; empty if it was not read.
    """

    app: str
    stage: str
    stacks: int
    queues: Mapping[str, DeployedQueue]
    functions: Mapping[str, int]
    routes: Mapping[str, int] = field(default_factory=dict)
    home: str = field(default="", compare=False)
    source: str = field(default="", compare=False)

    @property
    def place(self) -> str:
        """The file to name in a finding."""
        return self.source or str(deployed_file(self.app, self.stage))


def deployed_file(app: str, stage: str) -> PurePosixPath:
    """Return where the file of an app in a stage is, from the root of the project.

    Neither name has a dot, so no two of them share a file, and none has that of the outputs.
    """
    return PurePosixPath("deployed", f"{app}.{stage}.json")


def home_of(stack: str, prefix: str) -> str:
    """Return what tells the deployments of a project apart: the stack, and how its outputs of an app begin."""
    return f"{stack}/{prefix}"


def is_of(deployed: DeployedPlan, names: Deployment) -> bool:
    """Return whether it tells of this app in this stage."""
    return (deployed.app, deployed.stage) == (names.app, names.stage)


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
        routes={shape: stack for shape, stack in sorted(_stacks_of_routes(plan)) if stack != CORE_STACK},
    )


def deployed_to_json(deployed: DeployedPlan) -> dict[str, Json]:
    """Return the stored form."""
    home: dict[str, Json] = {"home": deployed.home} if deployed.home else {}
    return {
        **home,
        "format": DEPLOYED_FORMAT,
        "app": deployed.app,
        "stage": deployed.stage,
        "stacks": deployed.stacks,
        "queues": {name: {"type": queue.type, "stack": queue.stack} for name, queue in deployed.queues.items()},
        "functions": dict(deployed.functions),
        "routes": dict(deployed.routes),
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
            app=_name(stored["app"]),
            stage=_name(stored["stage"]),
            stacks=_number(stored["stacks"]),
            queues={
                name: DeployedQueue(type=_queue_type(queue["type"]), stack=_number(queue["stack"]))
                for name, queue in stored["queues"].items()
            },
            functions={name: _number(stack) for name, stack in stored["functions"].items()},
            routes={shape: _number(stack) for shape, stack in stored.get("routes", {}).items()},
            home=str(stored.get("home", "")),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as damage:
        raise _unreadable(repr(damage)[:200]) from damage


def compare_with_deployed(plan: AppPlan, previous: DeployedPlan) -> Iterator[Finding]:
    """Yield what this plan would destroy of the last deployment."""
    names, file = plan.deployment, previous.place
    if not is_of(previous, names):
        yield error(
            file,
            f"it tells of app '{previous.app}' in stage {previous.stage}, and by its name it is that of app "
            f"'{names.app}' in stage {names.stage}. Restore it from version control, or remove it if that stage was "
            "never deployed.",
        )
        return
    yield from _compare_stacks(plan, previous)
    for name, known in previous.queues.items():
        queue = plan.queues.get(name)
        if queue is None:
            yield warning(file, _removed(name, is_kept=plan.stage.production))
        elif known.type != _type_of(queue):
            yield error(queue.source, _changed_type(name, known, queue))
        elif queue.stack != queue.consumer_stack and CORE_STACK not in {queue.stack, queue.consumer_stack}:
            yield error(
                queue.source,
                f"queue '{name}' is in stack {queue.stack}, and the function that takes its messages now is in stack "
                f"{queue.consumer_stack}: neither stack could be deployed before the other. Bind it to the function it "
                "was bound to, or to none; or declare a queue with another name, and remove this one when it has run "
                "empty.",
            )
    yield from _compare_routes(plan, previous)


def warn_of_others(names: Deployment, others: Sequence[str]) -> Iterator[Finding]:
    """Yield that an app which is not deployed yet may be one that is, under a new name."""
    if others:
        known = ", ".join(f"'{app}'" for app in others)
        yield warning(
            str(deployed_file(names.app, names.stage)),
            f"there is no such file yet: this is the first deployment of app '{names.app}' in stage {names.stage}, "
            f"beside {known}. If it is one of these under a new name, set `app` of iii-aws back: everything would be "
            "created anew and empty, and in the stack where the old one is, AWS would delete that.",
        )


def _compare_stacks(plan: AppPlan, previous: DeployedPlan) -> Iterator[Finding]:
    highest = plan.stack_count - 1
    functions = [each.function_id for each in plan.functions.values() if each.function_id is not None]
    beyond = [
        *sorted(f"function '{name}'" for name in functions if previous.functions.get(name, CORE_STACK) > highest),
        *sorted(f"queue '{name}'" for name, queue in plan.queues.items() if queue.stack > highest),
    ]
    if beyond:
        yield error(
            previous.place,
            f"`stacks: {plan.stage.stacks}` no longer has the stacks of {', '.join(beyond[:3])}"
            f"{', ...' if len(beyond) > 3 else ''}. Set `stacks` of iii-aws to {previous.stacks} or more.",
        )


def _compare_routes(plan: AppPlan, previous: DeployedPlan) -> Iterator[Finding]:
    """Yield which routes would be created in a stack while another one still has them, which API Gateway refuses."""
    moved: dict[tuple[str, int, int], list[str]] = {}
    for route in plan.routes:
        known, new = previous.routes.get(route.shape, CORE_STACK), plan.functions[route.function].stack
        # The core stack is deployed before the others, and has let go of a route when they create it.
        if CORE_STACK != known != new:
            moved.setdefault((route.source, known, new), []).append(f"{route.method} {route.path}")
    for (source, known, new), routes in moved.items():
        yield error(
            source,
            f"{' and '.join(routes)}: its function is in stack {new} now, and stack {known} has what takes these "
            "requests, which API Gateway lets nobody create a second time. Deploy once without the trigger, and then "
            "with it; or let the function that has it answer.",
        )


def _stacks_of_routes(plan: AppPlan) -> Iterator[tuple[str, int]]:
    for route in plan.routes:
        yield route.shape, plan.functions[route.function].stack


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


def _name(value: object) -> str:
    # It becomes part of the name of a file.
    if not isinstance(value, str) or not value.replace("-", "").isalnum():
        raise TypeError(f"the name of an app or a stage is expected, found {value!r:.40}")
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
