"""Every Lambda's role allows what its code does, and no more: all requests are checked as IAM checks them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from iii_runtime.core.errors import IiiError
from iii_runtime.plan.app_plan import AppPlan, Permission
from iii_runtime.plan.names import FEED_FAILURES, TICK_QUEUE, Deployment
from tests.aws.calls import Call
from tests.aws.everything import NARROW
from tests.aws.everything_runs import SCENARIOS, Everything, deployed_everything
from tests.aws.iam import Need, Role, guard_of, needs_of, needs_of_answer, needs_of_mappings, roles_of
from tests.aws.orders import deployed_orders

NAMES = Deployment(app="shop", stage="dev", region="eu-central-1", account="123456789012")
API = NAMES.arn("execute-api", "w1x2y3z4a5")


@dataclass(frozen=True, slots=True)
class Run:
    """What a run of an app has asked.

    Attributes:
        plan: The app.
        used: What was asked of the role of each Lambda, and allowed.
        refused: What was asked and refused.
    """

    plan: AppPlan
    used: frozenset[tuple[str, Need]]
    refused: tuple[tuple[str, Need], ...]


@pytest.fixture(scope="module")
def everything() -> Run:
    """Every scenario, once."""
    with deployed_everything() as app:
        for scenario in SCENARIOS:
            scenario(app)
        return Run(app.simulator.plan, frozenset(app.guard.used), tuple(app.guard.refused))


@pytest.fixture
def app() -> Iterator[Everything]:
    with deployed_everything() as app:
        yield app


def test_no_request_of_any_lambda_is_denied(everything: Run) -> None:
    assert everything.refused == ()
    idle = everything.plan.functions.keys() - {name for name, _ in everything.used}
    assert {everything.plan.functions[name].function_id for name in idle} == {
        "any::is-wanted",
        "http::get",
        "on::stream",
    }


def test_lambda_may_take_what_it_hands_over_in_the_name_of_each_consumer(everything: Run) -> None:
    roles = roles_of(everything.plan)
    for name, needs in needs_of_mappings(everything.plan).items():
        assert [need for need in needs if not roles[name].allows(need)] == [], name


def test_no_right_is_given_that_nothing_uses(everything: Run) -> None:
    """Of the functions' roles each right is used by some function: which one needs what is known when it runs."""
    plan, roles = everything.plan, roles_of(everything.plan)
    used = {*everything.used, *((name, need) for name, needs in needs_of_mappings(plan).items() for need in needs)}
    kinds = {kind_of(plan, name, grant) for name, need in used for grant in roles[name].grants_of(need)}
    given = {kind_of(plan, name, grant) for name, role in roles.items() for grant in role.grants()}
    assert given - kinds == set()


class TestThePipeline:
    def test_orders_meet_no_denial_whatever_becomes_of_them(self) -> None:
        with deployed_orders() as stage:
            simulator = stage.simulator
            simulator.lambdas.overseer = guard = guard_of(simulator.plan)
            for name in ("order-ok", "order-ok", "order-declined", "order-unknown-product", "order-payment-flaky"):
                stage.post(name)
            simulator.settle()
            assert stage.order("ord-payment-flaky")["status"] == "fulfilled"
            for path in ("/orders", "/orders/ord-ok", "/orders/ord-ok/steps", "/orders/ord-none"):
                simulator.http.request("GET", path, "", (), b"")
            [declined] = stage.letters("order-payment")
            stage.call("engine::queue::dlq_message", message_id=declined["id"])
            stage.call("iii::queue::redrive", queue="order-payment")
            stage.call("iii::queue::discard", queue="order-validate")
            simulator.settle()
            simulator.trigger("iii::cron::run", {"function_id": "orders::cleanup-stale"})
            simulator.advance(timedelta(minutes=61))
            assert guard.refused == []
            assert {name for name, _ in guard.used} >= {
                planned.name for planned in simulator.plan.functions.values() if planned.function_id is not None
            }


class TestWhatNoFunctionMay:
    def test_no_function_reaches_the_lambdas_and_queues_of_the_runtime(self, everything: Run) -> None:
        """But the dispatcher, for who consumes a queue that may hold messages of other functions."""
        plan, names = everything.plan, everything.plan.deployment
        passing = {queue.consumer for queue in plan.queues.values() if queue.spec.topic is None}
        own = [
            names.arn("lambda", f"function:{name}") for name, each in plan.functions.items() if each.role is not None
        ]
        queues = [names.queue_arn(names.own_queue_name(name)) for name in (TICK_QUEUE, FEED_FAILURES, "cron-failures")]
        for name, role in roles_of(plan).items():
            if plan.functions[name].role is not None:
                continue
            reached = [arn for arn in own if role.allows(Need("lambda:InvokeFunction", arn))]
            assert reached == ([names.system_arn("dispatcher")] if name in passing else []), name
            assert not any(role.allows(Need("sqs:SendMessage", arn)) for arn in queues), name
            assert not role.allows(Need("sns:Publish", names.progress_topic_arn)), name

    def test_what_uses_does_not_name_is_refused_by_the_role_too(self, everything: Run) -> None:
        plan, names = everything.plan, everything.plan.deployment
        role = roles_of(plan)[names.function_name("narrow::run")]
        functions = {
            planned.function_id
            for planned in plan.functions.values()
            if planned.function_id
            and role.allows(Need("lambda:InvokeFunction", names.function_arn(planned.function_id)))
        }
        queues = {
            name
            for name, planned in plan.queues.items()
            if role.allows(Need("sqs:SendMessage", names.queue_arn(planned.name)))
        }
        topics = {
            topic.topic for topic in plan.topics if role.allows(Need("sns:Publish", names.arn("sns", topic.name)))
        }
        heard = {"heard::news"}  # a message of `publish` goes straight to the subscribers
        named = functions - heard | {f"queue:{name}" for name in queues} | {f"topic:{topic}" for topic in topics}
        assert named == set(NARROW)
        for resource in ("f-other", "q-other", "t-other"):
            for service, action in (("lambda", "InvokeFunction"), ("sqs", "SendMessage"), ("sns", "Publish")):
                place = f"function:{names.prefix}-{resource}" if service == "lambda" else f"{names.prefix}-{resource}"
                assert not role.allows(Need(f"{service}:{action}", names.arn(service, place)))

    def test_what_is_left_to_the_command_line_is_denied_with_a_typed_error(self, app: Everything) -> None:
        with pytest.raises(IiiError, match="not authorized to perform"):
            app.function("iii::queue::purge", by="any::run", queue="bound")
        assert {(name, need.action) for name, need in app.guard.refused} == {
            (app.simulator.deployment.function_name("any::run"), "sqs:PurgeQueue")
        }

    @pytest.mark.parametrize("function_id", ["engine::queue::topic_stats", "iii::queue::redrive_message"])
    def test_a_queue_that_is_not_in_uses_is_refused_before_aws_is_asked(
        self, app: Everything, function_id: str
    ) -> None:
        receipt = app.enqueue("shared", "any::act", die=True)
        with pytest.raises(IiiError, match="not_in_uses"):
            app.function(function_id, by="narrow::run", queue="shared", message_id=receipt)
        assert app.guard.refused == []

    def test_all_letters_are_moved_without_a_look_into_the_dead_letter_queue(self, app: Everything) -> None:
        """What SQS has moved there by itself is a letter once the minute tick has adopted it."""
        source = app.simulator.source("shared")
        source.throttles = app.simulator.plan.queues["shared"].max_receives
        app.enqueue("shared", "any::act")
        app.simulator.settle()
        app.enqueue("shared", "any::act", die=True)
        assert app.function("iii::queue::redrive", queue="shared")["redriven"] == 1
        app.simulator.advance(timedelta(minutes=5))
        assert app.function("iii::queue::redrive", queue="shared")["redriven"] >= 1
        assert app.guard.refused == []


class TestTheGuard:
    """The instrument itself."""

    def test_a_right_that_is_taken_away_is_missed(self, app: Everything) -> None:
        name = app.simulator.deployment.function_name("any::run")
        role = app.guard.roles[name]
        app.guard.roles = {**app.guard.roles, name: without(role, "dynamodb:PutItem")}
        app.control("state::set", scope="s", key="k", value=1)
        with pytest.raises(IiiError, match="not authorized to perform: dynamodb:PutItem"):
            app.function("state::set", scope="s", key="k", value=1)
        assert app.guard.refused == [(name, Need("dynamodb:PutItem", app.simulator.deployment.table_arn))]

    def test_a_request_nobody_has_described_is_an_error(self) -> None:
        for service, operation in (("dynamodb", "Scan"), ("sqs", "SetQueueAttributes"), ("iam", "CreateRole")):
            with pytest.raises(LookupError, match=f"{service}.{operation}"):
                needs_of(Call(service=service, operation=operation, parameters={"TableName": "t"}), NAMES)

    @pytest.mark.parametrize(
        ("pattern", "resource", "is_allowed"),
        [
            ("arn:aws:sqs:r:1:shop-dev-q-*", "arn:aws:sqs:r:1:shop-dev-q-mail.fifo", True),
            ("arn:aws:sqs:r:1:shop-dev-q-*", "arn:aws:sqs:r:1:shop-dev-d-mail", False),
            ("arn:aws:s3:::b/state/*", "arn:aws:s3:::b/state/a/b", True),
            ("arn:aws:s3:::b/state/*", "arn:aws:s3:::b/responses/a", False),
            ("arn:aws:s3:::b", "arn:aws:s3:::bc", False),
            ("secret:a-??????", "secret:a-AbCdEf", True),
            ("secret:a-??????", "secret:a-AbCdE", False),
            ("secret:a.b", "secret:acb", False),
        ],
    )
    def test_a_statement_allows_what_its_pattern_covers(self, pattern: str, resource: str, is_allowed: bool) -> None:
        role = Role((Permission(actions=("a:B",), resources=(pattern,)),))
        assert role.allows(Need("a:B", resource)) is is_allowed
        assert not role.allows(Need("a:C", resource))

    @pytest.mark.parametrize(
        ("service", "operation", "parameters", "needed"),
        [
            (
                "dynamodb",
                "Query",
                {"TableName": "t", "IndexName": "i"},
                ["dynamodb:Query on arn:aws:dynamodb:eu-central-1:123456789012:table/t/index/i"],
            ),
            (
                "dynamodb",
                "TransactWriteItems",
                {"TransactItems": [{"Put": {"TableName": "t"}}, {"ConditionCheck": {"TableName": "u"}}]},
                [
                    "dynamodb:PutItem on arn:aws:dynamodb:eu-central-1:123456789012:table/t",
                    "dynamodb:ConditionCheckItem on arn:aws:dynamodb:eu-central-1:123456789012:table/u",
                ],
            ),
            (
                "s3",
                "PutObject",
                {"Bucket": "b", "Key": "state/k", "Tagging": "a=b"},
                ["s3:PutObject on arn:aws:s3:::b/state/k", "s3:PutObjectTagging on arn:aws:s3:::b/state/k"],
            ),
            (
                "sqs",
                "SendMessageBatch",
                {"QueueUrl": "https://sqs.eu-central-1.amazonaws.com/123456789012/q.fifo"},
                ["sqs:SendMessage on arn:aws:sqs:eu-central-1:123456789012:q.fifo"],
            ),
            (
                "apigatewaymanagementapi",
                "DeleteConnection",
                {"ConnectionId": "c="},
                [f"execute-api:ManageConnections on {API}/live/DELETE/@connections/c="],
            ),
            (
                "ssm",
                "GetParameter",
                {"Name": "/a/b:3"},
                ["ssm:GetParameter on arn:aws:ssm:eu-central-1:123456789012:parameter/a/b"],
            ),
        ],
    )
    def test_what_aws_checks_for_a_request(
        self, service: str, operation: str, parameters: dict[str, Any], needed: list[str]
    ) -> None:
        call = Call(service=service, operation=operation, parameters=parameters)
        assert [str(need) for need in needs_of(call, NAMES)] == needed

    def test_a_missing_object_is_told_of_to_those_alone_who_may_list(self) -> None:
        call = Call(service="s3", operation="GetObject", parameters={"Bucket": "b", "Key": "k"})
        assert needs_of_answer(call, {"Error": {"Code": "NoSuchKey"}}, NAMES) == [
            Need("s3:ListBucket", "arn:aws:s3:::b")
        ]
        assert needs_of_answer(call, {}, NAMES) == []


def without(role: Role, action: str) -> Role:
    """The role without an action."""
    return Role(
        tuple(replace(each, actions=tuple(name for name in each.actions if name != action)) for each in role.statements)
    )


def kind_of(plan: AppPlan, name: str, grant: Need) -> tuple[str, str, str]:
    """Whose right it is, what it allows, and on what kind of resource."""
    planned = plan.functions[name]
    return (planned.role or "function", grant.action, _kind_of_resource(plan, name, grant.resource))


def _kind_of_resource(plan: AppPlan, function: str, resource: str) -> str:
    last = resource.rpartition(":")[2]
    for queue in plan.queues.values():
        whose = "its" if queue.consumer == function else "another's"
        if last == queue.name:
            return f"{whose} {'FIFO ' if queue.spec.is_ordered else ''}queue"
        if last == queue.letter_name:
            return f"{whose} dead-letter queue"
    kinds: Iterable[tuple[str, Callable[[str], bool]]] = (
        ("function", lambda text: text in plan.functions and plan.functions[text].role is None),
        ("topic", lambda text: any(text == topic.name for topic in plan.topics)),
    )
    return next((kind for kind, holds in kinds if holds(last)), resource)
