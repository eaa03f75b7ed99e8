"""What each role may do: exact resources, and every pattern with its reason."""

from __future__ import annotations

import fnmatch

import pytest

from iii_runtime import Cron, DurableSubscriber, Http, OnState, OnStream, Queue, Subscribe, Worker, register_worker
from iii_runtime.core.config import QueueConfig
from iii_runtime.core.queue import QueueSpec
from iii_runtime.plan.app_plan import AppPlan, Permission, PlannedFunction
from iii_runtime.plan.names import FEED_FAILURES, TICK_QUEUE, Deployment
from tests.unit.planning import DEV, add, config_with, function_of, planned, refused, staged, worker_with

CONFIG = config_with(QueueConfig(name="mail"), QueueConfig(name="bills", type="fifo", message_group_field="id"))
QUEUE = "arn:aws:sqs:eu-west-1:123456789012:shop-dev-"
FUNCTION = "arn:aws:lambda:eu-west-1:123456789012:function:shop-dev-"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:shop-dev-"
TABLE = "arn:aws:dynamodb:eu-west-1:123456789012:table/shop-dev"
BUCKET = "arn:aws:s3:::shop-dev-blobs-123456789012-eu-west-1"
CONSUME = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"}


def allowed(function: PlannedFunction, action: str) -> set[str]:
    """The resources on which a role may do something."""
    return {resource for each in function.permissions if action in each.actions for resource in each.resources}


def own(plan: AppPlan, role: str) -> PlannedFunction:
    return next(function for function in plan.functions.values() if function.role == role)


def patterns(function: PlannedFunction) -> list[Permission]:
    return [each for each in function.permissions if any("*" in name or "?" in name for name in each.resources)]


def shop() -> Worker:
    """An app with one of everything."""
    worker = register_worker()
    add(worker, "shop::order", Http("POST", "/orders"), secrets={"KEY": "secretsmanager:shop/{stage}/key"})
    add(worker, "shop::bill", Queue("bills"), Cron("*/5 * * * * *"), uses=["queue:mail", "shop::order", "topic:billed"])
    add(worker, "shop::mail", DurableSubscriber("billed"), OnState("orders", condition="shop::open"), uses=[])
    add(worker, "shop::watch", Subscribe("billed"), OnStream("orders"), uses=[])
    add(worker, "shop::open", uses=[])
    return worker


@pytest.fixture(scope="module")
def plan() -> AppPlan:
    return planned(shop(), config_with(*CONFIG.queues.values(), aws=staged(tracing=True)))


def test_every_pattern_says_why_and_these_are_all(plan: AppPlan) -> None:
    """What is added here is a decision about security: say in the plan why no exact resource will do."""
    objects = "Objects get their keys at run time; the prefix is one kind of object of this app and stage."
    target = (
        "The function names its targets when it runs, and has no `uses` to say which; all are of this app and stage."
    )
    count = "The function may ask how many messages and dead letters any queue of this app and stage has."
    letters = "It looks after the dead letters of every queue of this app and stage."
    request = "It carries out what the command line asks for, which may be about anything of this app and stage."
    traces = {"*": "X-Ray knows no resources."}
    blobs = {f"{BUCKET}/payloads/*": objects, f"{BUCKET}/state/*": objects}
    payloads = {f"{BUCKET}/payloads/*": objects}
    expected = {
        "shop::order": {
            **blobs,
            f"{BUCKET}/responses/*": objects,
            f"{QUEUE}q-*": target,
            f"{QUEUE}d-*": count,
            f"{FUNCTION}f-*": target,
            f"{TOPIC}t-*": target,
            "arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/dev/key-??????": (
                "Secrets Manager ends the ARN of a secret with six characters of its own."
            ),
        },
        "shop::bill": blobs,
        "shop::mail": blobs,
        "shop::watch": blobs,
        "shop::open": blobs,
        "dispatcher": {**payloads, f"{FUNCTION}f-*": "A message may name any function of this app and stage."},
        "control": {
            **blobs,
            f"{QUEUE}q-*": request,
            f"{QUEUE}d-*": request,
            f"{FUNCTION}f-*": request,
            f"{TOPIC}t-*": request,
        },
        "tick": {**payloads, f"{QUEUE}d-*": letters},
        "feed": {
            **blobs,
            f"{TABLE}/stream/*": "The ARN of a table's stream ends with the time at which it was made.",
        },
        "websocket": {f"{BUCKET}/state/*": objects},
    }
    found = {
        str(function.function_id or function.role): {
            name: each.why for each in patterns(function) for name in each.resources if "*" in name or "?" in name
        }
        for function in plan.functions.values()
    }
    assert found == {name: {**listed, **traces} for name, listed in expected.items()}


def test_a_reason_is_given_for_patterns_alone(plan: AppPlan) -> None:
    for function in plan.functions.values():
        for each in function.permissions:
            is_pattern = any("*" in name or "?" in name for name in each.resources)
            assert (each.why is not None) == is_pattern, each


def test_without_tracing_no_role_may_do_anything_to_everything() -> None:
    for function in planned(shop(), CONFIG).functions.values():
        assert "*" not in {name for each in function.permissions for name in each.resources}


def test_uses_narrows_a_role_to_exact_resources(plan: AppPlan) -> None:
    bill = function_of(plan, "shop::bill")
    assert allowed(bill, "sqs:SendMessage") == {f"{QUEUE}q-mail", f"{QUEUE}q-bills.fifo", f"{QUEUE}d-bills.fifo"}
    assert allowed(bill, "sns:Publish") == {f"{TOPIC}t-billed"}
    assert allowed(bill, "lambda:InvokeFunction") == {
        f"{FUNCTION}f-shop--order",
        f"{FUNCTION}f-shop--watch",  # hears `publish` on the topic
        f"{FUNCTION}x-dispatcher",
    }


def test_an_empty_uses_leaves_nothing_to_call(plan: AppPlan) -> None:
    watch = function_of(plan, "shop::watch")
    for action in ("sqs:SendMessage", "sns:Publish", "lambda:InvokeFunction"):
        assert allowed(watch, action) == set()


def test_a_condition_brings_the_rights_it_needs(plan: AppPlan) -> None:
    worker = worker_with(OnState("orders", condition="shop::open"), uses=["queue:mail"])
    add(worker, "shop::open", uses=["shop::rate"], secrets={"HOURS": "ssm:/shop/hours"})
    add(worker, "shop::rate")
    pay = function_of(planned(worker, CONFIG))
    assert allowed(pay, "sqs:SendMessage") == {f"{QUEUE}q-mail"}
    assert allowed(pay, "lambda:InvokeFunction") == {f"{FUNCTION}f-shop--rate"}
    assert allowed(pay, "ssm:GetParameter") == {"arn:aws:ssm:eu-west-1:123456789012:parameter/shop/hours"}


def test_a_condition_that_may_call_anything_makes_its_lambda_so() -> None:
    worker = worker_with(OnState("orders", condition="shop::open"), uses=[])
    add(worker, "shop::open")
    pay = function_of(planned(worker))
    assert allowed(pay, "lambda:InvokeFunction") == {DEV.function_pattern}


@pytest.mark.parametrize(
    ("source", "action", "resource"),
    [
        ("ssm:/shop/{stage}/key", "ssm:GetParameter", "arn:aws:ssm:eu-west-1:123456789012:parameter/shop/dev/key"),
        ("ssm:plain", "ssm:GetParameter", "arn:aws:ssm:eu-west-1:123456789012:parameter/plain"),
        (
            "secretsmanager:arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf",
            "secretsmanager:GetSecretValue",
            "arn:aws:secretsmanager:eu-west-1:123456789012:secret:key-AbCdEf",
        ),
        (
            "secretsmanager:shop/{stage}",
            "secretsmanager:GetSecretValue",
            "arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/dev-??????",
        ),
        # An ARN that leaves out the last six characters is taken by Secrets Manager, and matches no secret in IAM.
        (
            "secretsmanager:arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/key",
            "secretsmanager:GetSecretValue",
            "arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop/key-??????",
        ),
        # A version or a label is no part of a parameter's ARN.
        ("ssm:/shop/key:3", "ssm:GetParameter", "arn:aws:ssm:eu-west-1:123456789012:parameter/shop/key"),
        (
            "ssm:arn:aws:ssm:eu-west-1:210987654321:parameter/shop/key:live",
            "ssm:GetParameter",
            "arn:aws:ssm:eu-west-1:210987654321:parameter/shop/key",
        ),
    ],
)
def test_a_secret_is_granted_alone_and_to_its_function_alone(source: str, action: str, resource: str) -> None:
    worker = worker_with(secrets={"KEY": source})
    add(worker, "shop::other")
    plan = planned(worker)
    assert allowed(function_of(plan), action) == {resource}
    assert [name for name, function in plan.functions.items() if allowed(function, action)] == ["shop-dev-f-shop--pay"]


def test_a_consumer_may_take_its_own_messages_bury_them_and_pass_foreign_ones_on(plan: AppPlan) -> None:
    bill, mail, order = (function_of(plan, f"shop::{name}") for name in ("bill", "mail", "order"))
    for action in CONSUME - {"sqs:GetQueueAttributes"}:
        assert allowed(bill, action) == {f"{QUEUE}q-bills.fifo"}
        assert allowed(order, action) == set()
    # What it uses it may count too.
    assert allowed(bill, "sqs:GetQueueAttributes") == {f"{QUEUE}q-bills.fifo", f"{QUEUE}q-mail", f"{QUEUE}d-mail"}
    subscription = QueueSpec(name="topic/billed/shop::mail", topic="billed", function_id="shop::mail")
    assert allowed(mail, "sqs:SendMessage") == {DEV.queue_arn(DEV.letter_queue_name(subscription))}
    assert allowed(mail, "sqs:ReceiveMessage") == {DEV.queue_arn(DEV.queue_name(subscription))}
    assert allowed(mail, "lambda:InvokeFunction") == set()  # a subscription has no foreign messages


def test_the_dispatcher_takes_exactly_the_messages_nobody_is_bound_to(plan: AppPlan) -> None:
    dispatcher = own(plan, "dispatcher")
    assert allowed(dispatcher, "sqs:ReceiveMessage") == {f"{QUEUE}q-mail", f"{QUEUE}q-default"}
    assert allowed(dispatcher, "sqs:SendMessage") == {f"{QUEUE}d-{name}" for name in ("mail", "default")}


def test_only_a_consumer_of_a_fifo_queue_sends_to_it_what_came_under_the_wrong_group(plan: AppPlan) -> None:
    assert f"{QUEUE}q-bills.fifo" in allowed(function_of(plan, "shop::bill"), "sqs:SendMessage")
    queues = config_with(QueueConfig(name="slow", concurrency=1), QueueConfig(name="mail"))
    own_of_dispatcher = allowed(own(planned(worker_with(), queues), "dispatcher"), "sqs:SendMessage")
    assert f"{QUEUE}q-slow.fifo" in own_of_dispatcher
    assert f"{QUEUE}q-mail" not in own_of_dispatcher


def test_the_tick_starts_the_jobs_that_are_left_to_it(plan: AppPlan) -> None:
    tick = own(plan, "tick")
    assert allowed(tick, "lambda:InvokeFunction") == {f"{FUNCTION}f-shop--bill"}
    own_queue = DEV.queue_arn(DEV.own_queue_name(TICK_QUEUE))
    assert allowed(tick, "sqs:ReceiveMessage") == {own_queue, f"{QUEUE}d-*"}


def test_the_feed_starts_functions_with_such_triggers_alone(plan: AppPlan) -> None:
    feed = own(plan, "feed")
    assert allowed(feed, "lambda:InvokeFunction") == {f"{FUNCTION}f-shop--mail", f"{FUNCTION}f-shop--watch"}
    assert allowed(feed, "sns:Publish") == {DEV.progress_topic_arn}
    assert allowed(feed, "sqs:SendMessage") == {DEV.queue_arn(DEV.own_queue_name(FEED_FAILURES))}
    assert allowed(feed, "dynamodb:GetRecords") == {f"{TABLE}/stream/*"}


def test_only_the_command_line_may_purge_and_nobody_may_scan_or_administer(plan: AppPlan) -> None:
    assert [f.role for f in plan.functions.values() if allowed(f, "sqs:PurgeQueue")] == ["control"]
    actions = {action for f in plan.functions.values() for each in f.permissions for action in each.actions}
    assert not [action for action in actions if "*" in action or fnmatch.fnmatch(action, "*:*Scan*")]
    assert {action for action in actions if action.startswith("iam:")} == set()


def test_no_role_may_start_the_command_lines_lambda(plan: AppPlan) -> None:
    control = DEV.system_arn("control")
    for function in plan.functions.values():
        for resource in allowed(function, "lambda:InvokeFunction"):
            assert not fnmatch.fnmatchcase(control, resource), (function.name, resource)


def test_the_patterns_of_an_app_match_all_of_its_own_kind_and_nothing_else() -> None:
    queues = [QueueSpec(name="mail"), QueueSpec(name="bills", kind="fifo"), QueueSpec(name="x" * 80, kind="fifo")]
    for queue in queues:
        message, letter = DEV.queue_arn(DEV.queue_name(queue)), DEV.queue_arn(DEV.letter_queue_name(queue))
        assert fnmatch.fnmatchcase(message, DEV.queue_pattern)
        assert fnmatch.fnmatchcase(letter, DEV.letter_pattern)
        assert not fnmatch.fnmatchcase(letter, DEV.queue_pattern)
    others = [
        Deployment(app=app, stage=stage, region=DEV.region, account=DEV.account)
        for app, stage in (("shop", "prod"), ("shop", "dev2"), ("shop-dev", "qa"), ("my-shop", "dev"))
    ]
    for other in others:
        assert not fnmatch.fnmatchcase(other.function_arn("a::b"), DEV.function_pattern)
        assert not fnmatch.fnmatchcase(other.queue_arn(other.queue_name(queues[0])), DEV.queue_pattern)


def test_a_role_longer_than_aws_allows_is_refused_with_the_way_out() -> None:
    worker = worker_with(uses=[f"shop::function-with-a-rather-long-name-{number}" for number in range(120)])
    for number in range(120):
        add(worker, f"shop::function-with-a-rather-long-name-{number}")
    (finding,) = refused(worker, config_with(aws=staged(stacks=3)))
    assert finding.message.startswith("the role of 'shop::pay' would be longer than AWS allows")
    queues = [QueueConfig(name=f"queue-with-a-long-name-that-nobody-is-bound-to-{number}") for number in range(48)]
    (finding,) = refused(worker_with(), config_with(*queues))
    assert finding.message.startswith("the role of the dispatcher would be longer than AWS allows")
    assert "`Queue` trigger" in finding.message
