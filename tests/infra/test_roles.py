"""Each role has what its triggers need, and not more; every pattern among the resources is known."""

from __future__ import annotations

import json
import re
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Annotations, Match

from iii_runtime.cdk import IiiApp
from iii_runtime.core.config import Config
from iii_runtime.core.config.values import AwsConfig
from iii_runtime.core.errors import HostError
from iii_runtime.plan.names import Deployment
from tests.infra.synthesis import Synthesised, Template, a_code, as_list, manifest_of, new_app

NAMES = Deployment(app="shop", stage="dev", region="eu-west-1", account="111122223333")


def lambda_names(template: Template) -> list[str]:
    return [each["Properties"]["FunctionName"] for each in template.of("AWS::Lambda::Function").values()]


def test_each_lambda_has_a_role_of_its_own(shop: Synthesised) -> None:
    functions = shop.core.of("AWS::Lambda::Function").values()
    roles = [each["Properties"]["Role"]["Fn::GetAtt"][0] for each in functions]
    assert len(set(roles)) == len(roles)
    assert shop.core.of("AWS::IAM::Policy") == {}
    for role in roles:
        properties = shop.core.resources[role]["Properties"]
        assert "ManagedPolicyArns" not in properties
        trusted = properties["AssumeRolePolicyDocument"]["Statement"]
        assert [each["Principal"] for each in trusted] == [{"Service": "lambda.amazonaws.com"}]


def test_a_lambda_writes_to_its_own_log_group_alone(shop: Synthesised) -> None:
    core = shop.core
    groups = {
        name: core.function(name)["Properties"]["LoggingConfig"]["LogGroup"]["Ref"] for name in lambda_names(core)
    }
    assert len(set(groups.values())) == len(groups)
    for name, group in groups.items():
        assert core.allowed(name, "logs:PutLogEvents") == {f"arn:aws:logs:eu-west-1:111122223333:log-group:{group}"}
        assert core.resources[group]["Properties"]["RetentionInDays"] == 30


def test_the_consumer_of_a_queue_may_receive_from_it_and_nobody_else_may(shop: Synthesised) -> None:
    core = shop.core
    consumers: dict[str, set[str]] = {}
    for mapping in core.of("AWS::Lambda::EventSourceMapping").values():
        properties = core.properties(mapping)
        consumers.setdefault(properties["FunctionName"], set()).add(properties["EventSourceArn"])
    for name in lambda_names(core):
        queues = {arn for arn in consumers.get(name, set()) if ":sqs:" in arn}
        received = {arn for arn in core.allowed(name, "sqs:ReceiveMessage") if "-d-" not in arn}
        assert received == queues, name
        for action in ("sqs:DeleteMessage", "sqs:GetQueueAttributes"):
            assert queues <= core.allowed(name, action), (name, action)
        # To hide a message until its next attempt; a tick has none.
        delayed = queues - {NAMES.queue_arn("shop-dev-x-tick")}
        assert delayed <= core.allowed(name, "sqs:ChangeMessageVisibility"), name


def test_the_feed_may_read_the_stream_report_what_it_gives_up_and_write_to_connections(shop: Synthesised) -> None:
    core, feed = shop.core, "shop-dev-x-feed"
    stream = {"arn:aws:dynamodb:eu-west-1:111122223333:table/shop-dev/stream/*"}
    for action in ("GetRecords", "GetShardIterator", "DescribeStream", "ListStreams"):
        assert core.allowed(feed, f"dynamodb:{action}") == stream
    assert NAMES.queue_arn("shop-dev-x-feed-failures") in core.allowed(feed, "sqs:SendMessage")
    assert core.allowed(feed, "sns:Publish") == {NAMES.progress_topic_arn}
    assert {NAMES.function_arn("shop::on-state"), NAMES.function_arn("shop::on-stream")} == core.allowed(
        feed, "lambda:InvokeFunction"
    )


@pytest.mark.parametrize("name", ["shop-dev-x-feed", "shop-dev-x-websocket"])
def test_who_writes_to_connections_may_do_so_on_this_api_and_knows_where(shop: Synthesised, name: str) -> None:
    core = shop.core
    api = next(iter(core.of("AWS::ApiGatewayV2::Api", ProtocolType="WEBSOCKET")))
    allowed = core.allowed(name, "execute-api:ManageConnections")
    connections = f"arn:aws:execute-api:eu-west-1:111122223333:{core.text({'Ref': api})}/live/{{}}/@connections/*"
    assert allowed == {connections.format("POST"), connections.format("DELETE")}
    url = core.properties(core.function(name))["Environment"]["Variables"]["III_WEBSOCKET_URL"]
    assert url == f"https://{core.text({'Ref': api})}.execute-api.eu-west-1.amazonaws.com/live"


def test_nobody_else_may_write_to_connections(shop: Synthesised) -> None:
    writers = {name for name in lambda_names(shop.core) if shop.core.allowed(name, "execute-api:ManageConnections")}
    assert writers == {"shop-dev-x-feed", "shop-dev-x-websocket"}


def test_what_starts_a_function_is_permitted_to_invoke_it(shop: Synthesised) -> None:
    core = shop.core
    permitted = {
        (core.properties(each)["FunctionName"].rpartition(":")[2], each["Properties"]["Principal"])
        for each in core.of("AWS::Lambda::Permission").values()
    }
    assert permitted == {
        ("shop-dev-f-shop--order", "apigateway.amazonaws.com"),
        ("shop-dev-f-shop--admin", "apigateway.amazonaws.com"),
        ("shop-dev-x-websocket", "apigateway.amazonaws.com"),
        ("shop-dev-f-shop--nightly", "events.amazonaws.com"),
        ("shop-dev-x-tick", "events.amazonaws.com"),
    }
    for permission in core.of("AWS::Lambda::Permission").values():
        assert permission["Properties"]["SourceArn"]


def test_the_scheduler_may_invoke_the_scheduled_functions_and_nothing_else(shop: Synthesised) -> None:
    core = shop.core
    schedule = core.properties(core.one("AWS::Scheduler::Schedule"))
    role = next(
        role
        for role in core.of("AWS::IAM::Role").values()
        if "scheduler.amazonaws.com" in str(role["Properties"]["AssumeRolePolicyDocument"])
    )
    statements = core.text(role["Properties"]["Policies"][0]["PolicyDocument"]["Statement"])
    assert {each["Action"]: each["Resource"] for each in statements} == {
        "lambda:InvokeFunction": schedule["Target"]["Arn"],
        "sqs:SendMessage": NAMES.queue_arn("shop-dev-x-cron-failures"),
    }
    condition = core.text(role["Properties"]["AssumeRolePolicyDocument"]["Statement"][0]["Condition"])
    assert condition["StringEquals"]["aws:SourceAccount"] == "111122223333"


def test_a_function_with_uses_may_reach_these_alone(shop: Synthesised) -> None:
    core, mail = shop.core, "shop-dev-f-shop--mail"
    foreign = {arn for arn in core.allowed(mail, "sqs:SendMessage") if "mail" not in arn}
    assert foreign == {NAMES.queue_arn("shop-dev-q-pay.fifo")}
    assert NAMES.function_arn("shop::order") in core.allowed(mail, "lambda:InvokeFunction")
    assert NAMES.function_pattern not in core.allowed(mail, "lambda:InvokeFunction")


def test_a_secret_is_readable_by_its_function_alone(shop: Synthesised) -> None:
    readers = {name: shop.core.allowed(name, "ssm:GetParameter") for name in lambda_names(shop.core)}
    assert {name: arns for name, arns in readers.items() if arns} == {
        "shop-dev-f-shop--pay": {"arn:aws:ssm:eu-west-1:111122223333:parameter/shop/dev/card"}
    }


PATTERNS = {
    # Names that code chooses when it runs, all of this app and stage.
    r"arn:aws:sqs:[^:]+:\d+:shop-dev-q-\*": {"sqs"},
    r"arn:aws:lambda:[^:]+:\d+:function:shop-dev-f-\*": {"lambda"},
    r"arn:aws:sns:[^:]+:\d+:shop-dev-t-\*": {"sns"},
    # The runtime's own Lambdas look after every dead-letter queue.
    r"arn:aws:sqs:[^:]+:\d+:shop-dev-d-\*": {"sqs"},
    # Keys of objects, the time in a stream's name, ids of connections: made at run time.
    r"arn:aws:s3:::shop-dev-blobs-[^/]+/(payloads|state|responses)/\*": {"s3"},
    r"arn:aws:dynamodb:[^:]+:\d+:table/shop-dev/stream/\*": {"dynamodb"},
    r"arn:aws:execute-api:[^:]+:\d+:[^/]+/live/(POST|DELETE)/@connections/\*": {"execute-api"},
    # X-Ray knows no resources.
    r"\*": {"xray"},
}


def test_every_pattern_in_a_role_is_one_of_these(shop: Synthesised, production: Synthesised) -> None:
    for template in (*shop.templates.values(), *production.templates.values()):
        for role in template.of("AWS::IAM::Role").values():
            for policy in role["Properties"].get("Policies", []):
                for statement in template.text(policy["PolicyDocument"]["Statement"]):
                    for resource in as_list(statement["Resource"]):
                        if "*" in resource:
                            plain = resource.replace("shop-prod", "shop-dev")
                            known = [kinds for rule, kinds in PATTERNS.items() if re.fullmatch(rule, plain)]
                            kinds = {action.partition(":")[0] for action in as_list(statement["Action"])}
                            assert known == [kinds], (resource, statement["Action"])
                    assert not any("*" in action for action in as_list(statement["Action"]))


def test_what_others_may_do_is_bound_to_where_it_comes_from(shop: Synthesised) -> None:
    """Policies of queues, topics and the bucket: services only, each for a source; everybody is only denied."""
    kinds = ("AWS::SQS::QueuePolicy", "AWS::SNS::TopicPolicy", "AWS::S3::BucketPolicy")
    for kind in kinds:
        for policy in shop.core.of(kind).values():
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
                if statement["Effect"] == "Deny":
                    continue
                assert set(statement["Principal"]) == {"Service"}
                assert re.search(r"aws:Source(Arn|Account)", str(statement["Condition"]))


def own_app(out: Path, stack_name: str = "Mine") -> tuple[cdk.App, cdk.Stack, IiiApp]:
    app = new_app(out)
    stack = cdk.Stack(app, stack_name)
    config = Config(aws=AwsConfig(app="shop"))
    manifest = manifest_of(config, lambda worker: worker.function("shop::pay")(print))
    return app, stack, IiiApp(stack, "App", manifest=manifest, code=a_code(), config=None)


@pytest.mark.parametrize(("stack_name", "expected"), [("Mine", 1), ("Mine-dev", 0)])
def test_a_stack_that_another_stage_would_replace_is_warned_of(tmp_path: Path, stack_name: str, expected: int) -> None:
    _, stack, _ = own_app(tmp_path, stack_name)
    told = Annotations.from_stack(stack).find_warning("*", Match.string_like_regexp("would replace another"))
    assert len(told) == expected


def statements_of_additions(out: Path) -> list[dict[str, object]]:
    template = Template(name="Mine", content=json.loads((out / "Mine.template.json").read_text()))
    role = template.function("shop-dev-f-shop--pay")["Properties"]["Role"]["Fn::GetAtt"][0]
    return [
        statement
        for policy in template.of("AWS::IAM::Policy").values()
        if policy["Properties"]["Roles"] == [{"Ref": role}]
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
    ]


def test_a_grant_of_ones_own_reaches_the_role_of_the_function(tmp_path: Path) -> None:
    app, stack, iii = own_app(tmp_path)
    s3.Bucket(stack, "Invoices").grant_read(iii.functions["shop::pay"])
    iii.grant("shop::pay", iam.PolicyStatement(actions=["ses:SendEmail"], resources=["arn:aws:ses:x:1:identity/a"]))
    app.synth()
    actions = {action for each in statements_of_additions(tmp_path) for action in as_list(each["Action"])}
    assert {"ses:SendEmail", "s3:GetObject*", "s3:List*"} <= actions


def test_a_grant_to_a_function_that_does_not_exist_is_refused_with_those_that_do(tmp_path: Path) -> None:
    _, _, iii = own_app(tmp_path)
    with pytest.raises(HostError, match="'shop::buy' is not registered; there are shop::pay") as refused:
        iii.grant("shop::buy", iam.PolicyStatement(actions=["s3:GetObject"], resources=["*"]))
    assert refused.value.code == "function_not_registered"
