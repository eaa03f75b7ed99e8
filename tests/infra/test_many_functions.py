"""More functions than a stack holds are spread over stacks, and stay where they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import aws_cdk as cdk
import pytest

from iii_runtime import Cron, DurableSubscriber, Http, Worker
from iii_runtime.cdk import IiiApp
from iii_runtime.core.config import Config
from iii_runtime.core.config.values import HttpConfig, StreamConfig
from iii_runtime.core.errors import HostError
from iii_runtime.core.triggers import TriggerKind
from iii_runtime.plan.app_plan import CORE_STACK, AppPlan
from iii_runtime.plan.stacks import count_resources
from tests.infra.conftest import MANY, STACKS, many_functions
from tests.infra.synthesis import Synthesised, Template, a_code, manifest_of, new_app, prepared, synthesise


def homes(made: Synthesised) -> Mapping[str, tuple[str, str]]:
    """Return stack and logical id of each Lambda and queue by its name on AWS."""
    return {
        resource["Properties"][key]: (template.name, logical_id)
        for template in made.templates.values()
        for kind, key in (("AWS::Lambda::Function", "FunctionName"), ("AWS::SQS::Queue", "QueueName"))
        for logical_id, resource in template.of(kind).items()
    }


def stacks_in(plan: AppPlan) -> Mapping[str, int]:
    """Return the stack of each Lambda and queue by its name on AWS."""
    functions = {name: function.stack for name, function in plan.functions.items()}
    return functions | {queue.name: queue.stack for queue in plan.queues.values()}


def test_there_are_a_core_stack_and_as_many_for_functions_as_was_said(many: Synthesised) -> None:
    assert list(many.templates) == ["many-dev", *(f"many-dev-{number}" for number in range(1, STACKS + 1))]
    assert len(many.app.functions) == MANY
    core = {each["Properties"]["FunctionName"] for each in many.core.of("AWS::Lambda::Function").values()}
    assert core == {f"many-dev-x-{role}" for role in ("control", "dispatcher", "feed", "tick", "websocket")}


def test_no_stack_comes_near_the_limit_of_cloudformation(many: Synthesised) -> None:
    assert max(len(template.resources) for template in many.templates.values()) <= 450


@pytest.mark.parametrize("app", ["pipeline", "shop", "production", "many"])
def test_the_plan_counts_no_fewer_resources_than_a_stack_gets_and_few_more(
    request: pytest.FixtureRequest, app: str
) -> None:
    """One is what the CDK's command line adds to each stack; options of the core stack make up the rest."""
    made: Synthesised = request.getfixturevalue(app)
    counted = count_resources(made.app.plan)
    spare = [counted[number] - len(template.resources) for number, template in enumerate(made.templates.values())]
    assert 1 <= spare[CORE_STACK] <= 3
    assert set(spare[1:]) <= {1}
    if app == "production":  # with every option
        assert spare[CORE_STACK] == 1


def test_one_function_more_moves_none(many: Synthesised, tmp_path: Path) -> None:
    before, after = stacks_in(many.app.plan), stacks_in(prepared(tmp_path, manifest=many_functions(MANY + 1)).plan)
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)


def test_the_others_have_no_part_in_where_a_function_is_and_what_it_is_called_there(
    many: Synthesised, tmp_path: Path
) -> None:
    few = homes(synthesise(tmp_path, manifest=many_functions(12), alarms=False))
    assert len(few) > 2 * 12
    assert few.items() <= homes(many).items()


def test_no_stack_exports_anything(many: Synthesised) -> None:
    for template in many.templates.values():
        assert "Fn::ImportValue" not in str(template.content)
        assert not any("Export" in output for output in template.content.get("Outputs", {}).values())


def test_the_other_stacks_are_deployed_after_the_first(many: Synthesised) -> None:
    first, *others = many.app.stacks
    for stack in others:
        assert [each.stack_name for each in stack.dependencies] == [first.stack_name]


def test_a_queue_is_in_the_stack_of_its_consumer(many: Synthesised) -> None:
    where = homes(many)
    for queue in many.app.plan.queues.values():
        assert where[queue.name][0] == where[queue.letter_name][0] == where[queue.consumer][0]


def parameter_of(template: Template, ref: str) -> str:
    return str(template.content["Parameters"][ref]["Default"])


def test_routes_are_beside_their_functions_and_find_the_api_by_a_parameter(many: Synthesised) -> None:
    published = {each["Properties"]["Name"] for each in many.core.of("AWS::SSM::Parameter").values()}
    assert published == {"/iii/many/dev/http-api", "/iii/many/dev/http-authorizer"}
    count = 0
    for template in list(many.templates.values())[1:]:
        for route in template.of("AWS::ApiGatewayV2::Route").values():
            properties = route["Properties"]
            assert parameter_of(template, properties["ApiId"]["Ref"]) == "/iii/many/dev/http-api"
            assert parameter_of(template, properties["AuthorizerId"]["Ref"]) == "/iii/many/dev/http-authorizer"
            count += 1
    assert count == MANY // 4 * 2  # GET, and HEAD beside it


def test_subscriptions_name_their_topic_across_stacks(many: Synthesised) -> None:
    topics = {each["Properties"]["TopicName"] for each in many.core.of("AWS::SNS::Topic").values()}
    named = [
        template.properties(each)["TopicArn"].rpartition(":")[2]
        for template in list(many.templates.values())[1:]
        for each in template.of("AWS::SNS::Subscription").values()
    ]
    assert len(named) == MANY // 4
    assert set(named) <= topics


def test_a_construct_in_one_stack_refuses_a_stage_of_several(tmp_path: Path) -> None:
    stack = cdk.Stack(new_app(tmp_path), "Mine")
    with pytest.raises(HostError, match="Use IiiStacks") as refused:
        IiiApp(stack, "App", manifest=many_functions(4), code=a_code())
    assert refused.value.code == "stacks_needed"


def test_ids_that_differ_in_signs_alone_stay_apart(tmp_path: Path) -> None:
    def register_alike(worker: Worker) -> None:
        triggers: list[TriggerKind] = [
            Cron("0 */5 * * * *"),
            Cron("0 5 * * * *"),
            Http("GET", "/a-b"),
            Http("GET", "/a/b"),
        ]
        worker.function("a::b", triggers=triggers)(print)
        worker.function("ab", triggers=[])(print)

    config = Config(http=HttpConfig(auth="none"), stream=StreamConfig(auth="iam"))
    made = synthesise(tmp_path, manifest=manifest_of(config, register_alike)).core
    assert len(made.of("AWS::Events::Rule")) == 3
    assert len(made.of("AWS::ApiGatewayV2::Route")) == 2 * 2 + 3
    assert {"iii-dev-f-a--b", "iii-dev-f-ab"} <= {
        each["Properties"]["FunctionName"] for each in made.of("AWS::Lambda::Function").values()
    }


def test_long_names_are_fitted_into_what_aws_takes(tmp_path: Path) -> None:
    long = "x" * 250

    def register_long(worker: Worker) -> None:
        worker.function(f"shop::{long}", triggers=[DurableSubscriber(long), Cron("0 0 3 * * *", timezone="UTC")])(print)

    made = synthesise(tmp_path, manifest=manifest_of(Config(stream=StreamConfig(auth="iam")), register_long)).core
    limits = {
        "AWS::Lambda::Function": {"FunctionName": 64, "Description": 256},
        "AWS::SQS::Queue": {"QueueName": 80},
        "AWS::SNS::Topic": {"TopicName": 256},
        "AWS::Events::Rule": {"Name": 64, "Description": 512},
        "AWS::CloudWatch::Alarm": {"AlarmName": 255, "AlarmDescription": 1024},
    }
    for kind, members in limits.items():
        for resource in made.of(kind).values():
            for member, most in members.items():
                assert len(resource["Properties"][member]) <= most, (kind, member)
    names = [each["Properties"]["AlarmName"] for each in made.of("AWS::CloudWatch::Alarm").values()]
    assert len(set(names)) == len(names)
