"""What AWS cannot do, or would silently get wrong, whatever the stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from iii_runtime.core.function_options import QUEUE_USE, TOPIC_USE
from iii_runtime.core.queue import QueueSpec
from iii_runtime.core.registry import FunctionSpec, is_reserved
from iii_runtime.core.triggers import DurableSubscriber, Http, Queue, Subscribe
from iii_runtime.plan.aws_texts import check_texts
from iii_runtime.plan.basis import Basis, timeout_of
from iii_runtime.plan.findings import (
    Finding,
    error,
    place_in_config,
    place_of_function,
    place_of_queue,
    place_of_trigger,
    suggestion,
    warning,
)
from iii_runtime.plan.limits import (
    ACCOUNT_CONCURRENCY,
    ANSWER_TIME,
    API_TIMEOUT,
    CHANGE_AGE,
    CHANGE_ALARM_AGE,
    FUNCTION_TIMEOUT,
    MAX_ATTEMPTS,
    MAX_CONCURRENCY,
    MAX_RECEIVES,
    MESSAGE_LIFE,
    RULES,
    THROTTLE_BURST,
    UNRESERVED_CONCURRENCY,
)
from iii_runtime.plan.names import clashing_app_part
from iii_runtime.plan.queues import queue_triggers, sum_of_backoffs
from iii_runtime.plan.schedules import cron_jobs, plan_firing
from iii_runtime.plan.sqs import is_ordered_topic, mapping_concurrency


def check_on_aws(basis: Basis, *, now: datetime | None = None) -> list[Finding]:
    """Return what is wrong with an app on AWS, in any stage.

    Args:
        basis: The app.
        now: The present; None does not look for schedules that have run out.
    """
    findings: list[Finding] = []
    for function in basis.catalog.functions.values():
        findings += _check_function(basis, function)
        findings += _check_uses(basis, function)
    for queue in basis.queues.values():
        findings += _check_queue(basis, queue)
    return [
        *findings,
        *_check_bindings(basis),
        *_check_names(basis),
        *check_texts(basis),
        *_check_schedules(basis, now),
        *_check_sums(basis),
        *_check_stage(basis),
    ]


def _check_function(basis: Basis, function: FunctionSpec) -> Iterator[Finding]:
    where, timeout = place_of_function(function), timeout_of(function)
    if function.workflow is not None:
        yield error(
            where,
            f"'{function.id}' is a workflow, and workflows cannot be deployed to AWS yet: they run on the embedded "
            "host. Leave it out of what is deployed.",
        )
    if timeout > FUNCTION_TIMEOUT:
        yield error(
            where,
            f"function '{function.id}' may run for {_duration(timeout)}, on AWS {_duration(FUNCTION_TIMEOUT)} is the "
            "longest. Lower its `timeout`, and split the work over several messages.",
        )
    routes = [trigger for trigger in basis.triggers(Http) if trigger.function_id == function.id]
    # The default of 30 s is no choice that anybody has to hear of.
    if routes and timeout > API_TIMEOUT:
        yield warning(
            where,
            f"function '{function.id}' may run for {_duration(timeout)}, and an HTTP API waits "
            f"{_duration(API_TIMEOUT)}: a request is answered with 504 after {_duration(API_TIMEOUT - ANSWER_TIME)}, "
            "and the run is ended then. Enqueue the work and answer at once, or lower its `timeout`.",
        )
    reserved, queues = function.options.reserved_concurrency, basis.queues_of(function.id)
    needed = sum(mapping_concurrency(queue) for queue in queues)
    if reserved is not None and reserved < needed:
        names = ", ".join(f"'{queue.name}'" for queue in queues)
        yield error(
            where,
            f"function '{function.id}' reserves a concurrency of {reserved}, and its queues ({names}) start up to "
            f"{needed} at once: what is refused uses up receives until it is a dead letter. Set "
            f"`reserved_concurrency` to {needed} or more, or lower the queue's `concurrency`.",
        )


def _check_uses(basis: Basis, function: FunctionSpec) -> Iterator[Finding]:
    where = place_of_function(function)
    topics = {
        trigger.kind.topic
        for trigger in basis.catalog.triggers
        if isinstance(trigger.kind, Subscribe | DurableSubscriber)
    }
    for use in function.options.uses or ():
        begin = f"function '{function.id}' uses '{use}'"
        if use.startswith(TOPIC_USE):
            topic = use.removeprefix(TOPIC_USE)
            if topic not in topics:
                yield warning(where, f"{begin}, a topic nobody subscribes to{suggestion(topic, topics)}.")
        elif use.startswith(QUEUE_USE):
            queue = use.removeprefix(QUEUE_USE)
            if queue not in basis.config.queues:
                yield error(
                    where,
                    f"{begin}, a queue that is not in queue_configs{suggestion(queue, basis.config.queues)}. Correct "
                    "it, or declare the queue in iii-config.yaml.",
                )
        elif is_reserved(use):
            yield warning(where, f"{begin}, which is open to every function; `uses` need not name it.")
        elif use not in basis.catalog.functions:
            yield error(
                where,
                f"{begin}, a function that is not registered{suggestion(use, basis.catalog.functions)}. Correct it, "
                "or remove it.",
            )


def _check_queue(basis: Basis, queue: QueueSpec) -> Iterator[Finding]:
    where = place_of_queue(basis.config, basis.catalog, queue)
    if queue.concurrency > MAX_CONCURRENCY:
        yield error(
            where,
            f"queue '{queue.name}' has a concurrency of {queue.concurrency}; AWS takes {MAX_CONCURRENCY} at most. "
            "Lower `concurrency`.",
        )
    if queue.max_attempts > MAX_ATTEMPTS:
        yield error(
            where,
            f"queue '{queue.name}' allows {queue.max_attempts} attempts; on AWS {MAX_ATTEMPTS} are the most. Lower "
            f"`{_attempts_key(queue)}`.",
        )
        return
    if queue.max_receives > MAX_RECEIVES:
        yield error(
            where,
            f"queue '{queue.name}' is read in batches of {queue.batch_size}: its {queue.max_attempts} attempts need "
            f"{queue.max_receives} receives, and SQS counts to {MAX_RECEIVES}. Lower "
            f"`{_attempts_key(queue)}` or `batch_size`.",
        )
        return
    life = sum_of_backoffs(queue, up_to=MESSAGE_LIFE) + basis.visibility(queue) * queue.max_receives
    if life > MESSAGE_LIFE:
        yield error(
            where,
            f"queue '{queue.name}': a message could need more than {MESSAGE_LIFE.days} days for its "
            f"{queue.max_attempts} attempts, and SQS forgets it after 14. Lower `{_attempts_key(queue)}`, the "
            "back-off, or the timeout of its function.",
        )


def _check_bindings(basis: Basis) -> Iterator[Finding]:
    for trigger in basis.triggers(Queue):
        if not isinstance(trigger.kind, Queue) or trigger.kind.batch_size == 1:
            continue
        queue = basis.queues.get(trigger.kind.name)
        if queue is None:
            continue
        begin = f"queue trigger of '{trigger.function_id}': batch_size {trigger.kind.batch_size}"
        if queue.is_shared:
            yield warning(
                place_of_trigger(trigger),
                f"{begin} has no effect: several functions are bound to queue '{queue.name}', so the dispatcher takes "
                "its messages, one at a time.",
            )
        elif queue.concurrency == 1:
            yield error(
                place_of_trigger(trigger),
                f"{begin} does not go with `concurrency: 1` of queue '{queue.name}', whose messages are handled one "
                "after the other. Leave it out, or raise `concurrency`.",
            )
        elif trigger.kind != queue_triggers(basis.catalog, queue.name, trigger.function_id)[0]:
            yield warning(
                place_of_trigger(trigger),
                f"{begin} has no effect: an earlier trigger binds the function to queue '{queue.name}', and counts.",
            )


def _check_names(basis: Basis) -> Iterator[Finding]:
    names, app = basis.deployment, basis.deployment.app
    part = clashing_app_part(app)
    if part is not None:
        yield error(
            place_in_config(basis.config, basis.config.aws.line),
            f"app '{app}' has the part '-{part}', which marks a kind of resource in the names on AWS: its queues and "
            f"functions could be among those of another app. Choose a name without it.",
        )
    functions = basis.catalog.functions.values()
    jobs = {identity: place_of_trigger(trigger) for identity, (_, trigger) in cron_jobs(basis).items()}
    topics = {
        queue.topic: place_of_queue(basis.config, basis.catalog, queue)
        for queue in basis.queues.values()
        if queue.topic is not None
    }
    yield from _collisions("functions", ((f.id, names.function_name(f.id), place_of_function(f)) for f in functions))
    yield from _collisions(
        "queues",
        ((q.name, names.queue_name(q), place_of_queue(basis.config, basis.catalog, q)) for q in basis.queues.values()),
    )
    yield from _collisions(
        "topics",
        ((t, names.topic_name(t, ordered=is_ordered_topic(basis, t)), where) for t, where in topics.items()),
    )
    yield from _collisions("cron jobs", ((job, names.rule_name(job), where) for job, where in jobs.items()))


def _collisions(what: str, named: Iterable[tuple[str, str, str]]) -> Iterator[Finding]:
    """Yield a finding for each of `(identity, name on AWS, place)` whose name an earlier one has."""
    taken: dict[str, str] = {}
    for identity, name, where in named:
        first = taken.setdefault(name, identity)
        if first != identity:
            yield error(where, f"the {what} '{first}' and '{identity}' would both be called '{name}'. Rename one.")


def _check_schedules(basis: Basis, now: datetime | None) -> Iterator[Finding]:
    jobs = cron_jobs(basis).values()
    for schedule, trigger in jobs:
        if now is not None and schedule.next_after(now) is None:
            yield error(
                place_of_trigger(trigger),
                f"cron trigger of '{trigger.function_id}': {schedule.expression!r} never fires again, its years have "
                "passed. Correct the years, or remove the trigger.",
            )
    rules = sum(plan_firing(schedule).kind == "rule" for schedule, _ in jobs)
    if rules > RULES:
        yield warning(
            place_in_config(basis.config, basis.config.aws.line),
            f"{rules} cron triggers become EventBridge rules, and an account has {RULES} unless AWS has raised that. "
            "Ask for more, or give some of them a time zone: those become schedules.",
        )


def _check_sums(basis: Basis) -> Iterator[Finding]:
    reserved = sum(function.options.reserved_concurrency or 0 for function in basis.catalog.functions.values())
    if reserved > ACCOUNT_CONCURRENCY - UNRESERVED_CONCURRENCY:
        yield warning(
            place_in_config(basis.config, basis.config.aws.line),
            f"the functions reserve a concurrency of {reserved} together; an account has {ACCOUNT_CONCURRENCY} unless "
            f"AWS has raised that, and must leave {UNRESERVED_CONCURRENCY} unreserved. Reserve less, or ask for more.",
        )


def _check_stage(basis: Basis) -> Iterator[Finding]:
    where, stage = place_in_config(basis.config, basis.config.aws.line), basis.stage
    if stage.throttle_burst > THROTTLE_BURST:
        yield error(where, f"`throttle_burst` is {stage.throttle_burst}, AWS takes {THROTTLE_BURST} at most. Lower it.")
    if stage.oldest_message_alarm_s > CHANGE_ALARM_AGE.seconds:
        yield warning(
            where,
            f"`oldest_message_alarm_s` is {stage.oldest_message_alarm_s}, and changes are given up when they are "
            f"{_duration(CHANGE_AGE)} old: the alarm 'change feed late' is raised at {_duration(CHANGE_ALARM_AGE)} all "
            "the same. Set it to that or less, and both are raised at one age.",
        )


def _attempts_key(queue: QueueSpec) -> str:
    return "max_retries" if queue.topic is None else "maxRetries"


def _duration(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"
