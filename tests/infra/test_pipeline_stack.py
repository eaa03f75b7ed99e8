"""The stack of this repository has what the functions and the configuration say, and nothing was written down twice."""

from __future__ import annotations

import json
from pathlib import Path

from iii_runtime import Cron, Http, Queue, Worker
from iii_runtime.adapters.config_file import load_config
from iii_runtime.core.config import Config, QueueConfig
from iii_runtime.core.config.values import AwsConfig
from iii_runtime.core.triggers import TriggerKind
from iii_runtime.hosts.embedded.discovery import discover_workers
from iii_runtime.plan.names import Deployment
from tests.infra.synthesis import ROOT, Synthesised, manifest_of, synthesise

NAMES = Deployment(app="orders", stage="dev", region="eu-west-1", account="111122223333")
SYSTEM = ("control", "dispatcher", "feed", "tick", "websocket")


def registered() -> list[str]:
    workers = discover_workers([str(ROOT / "functions")])
    return sorted(function.id for worker in workers for function in worker.registry.functions())


def test_each_registered_function_is_one_lambda_beside_those_of_the_runtime(pipeline: Synthesised) -> None:
    names = {each["Properties"]["FunctionName"] for each in pipeline.core.of("AWS::Lambda::Function").values()}
    assert names == {NAMES.function_name(each) for each in registered()} | {f"orders-dev-x-{role}" for role in SYSTEM}
    assert sorted(pipeline.app.functions) == registered()


def test_each_named_queue_has_a_dead_letter_queue_a_redrive_policy_and_one_consumer(pipeline: Synthesised) -> None:
    core = pipeline.core
    for name, queue in load_config(ROOT / "iii-config.yaml", {}).queues.items():
        suffix = ".fifo" if queue.type == "fifo" or queue.concurrency == 1 else ""
        source = core.one("AWS::SQS::Queue", QueueName=f"orders-dev-q-{name}{suffix}")
        letters = core.one("AWS::SQS::Queue", QueueName=f"orders-dev-d-{name}{suffix}")
        redrive = core.properties(source)["RedrivePolicy"]
        assert redrive["deadLetterTargetArn"] == NAMES.queue_arn(f"orders-dev-d-{name}{suffix}")
        assert redrive["maxReceiveCount"] > queue.max_attempts
        allowed = core.properties(letters)["RedriveAllowPolicy"]
        assert allowed == {
            "redrivePermission": "byQueue",
            "sourceQueueArns": [NAMES.queue_arn(f"orders-dev-q-{name}{suffix}")],
        }
        mappings = [
            core.properties(each)
            for each in core.of("AWS::Lambda::EventSourceMapping").values()
            if core.properties(each)["EventSourceArn"] == NAMES.queue_arn(f"orders-dev-q-{name}{suffix}")
        ]
        assert [each["FunctionResponseTypes"] for each in mappings] == [["ReportBatchItemFailures"]]
        assert mappings[0]["ScalingConfig"] == {"MaximumConcurrency": max(queue.concurrency, 2)}
        assert "FilterCriteria" not in mappings[0]


def test_a_bound_queue_goes_straight_to_its_function_and_the_others_to_the_dispatcher(pipeline: Synthesised) -> None:
    core = pipeline.core
    consumers = {
        core.properties(each)["EventSourceArn"].rpartition(":")[2]: core.properties(each)["FunctionName"]
        for each in core.of("AWS::Lambda::EventSourceMapping").values()
    }
    assert consumers["orders-dev-q-order-payment.fifo"] == "orders-dev-f-orders--charge-payment"
    assert consumers["orders-dev-q-order-ship"] == "orders-dev-f-orders--ship"
    assert consumers["orders-dev-q-default"] == "orders-dev-x-dispatcher"


def test_the_hourly_job_is_a_rule_that_starts_its_function(pipeline: Synthesised) -> None:
    rule = pipeline.core.one("AWS::Events::Rule", ScheduleExpression="cron(0 * * * ? *)")
    target = pipeline.core.properties(rule)["Targets"][0]
    assert target["Arn"] == NAMES.function_arn("orders::cleanup-stale")
    assert target["DeadLetterConfig"]["Arn"] == NAMES.queue_arn("orders-dev-x-cron-failures")


def test_the_http_triggers_are_routes_to_their_functions(pipeline: Synthesised) -> None:
    core = pipeline.core
    integrations = core.of("AWS::ApiGatewayV2::Integration")
    routes = {}
    for route in core.of("AWS::ApiGatewayV2::Route").values():
        integration = integrations[route["Properties"]["Target"]["Fn::Join"][1][1]["Ref"]]
        function = core.properties(integration)["IntegrationUri"].rpartition("function:")[2]
        routes[route["Properties"]["RouteKey"]] = function
    assert {key: value for key, value in routes.items() if not key.startswith("$")} == {
        "POST /orders": "orders-dev-f-orders--create",
        "GET /orders": "orders-dev-f-orders--list",
        "HEAD /orders": "orders-dev-f-orders--list",
        "GET /orders/{order_id}": "orders-dev-f-orders--get",
        "HEAD /orders/{order_id}": "orders-dev-f-orders--get",
        "GET /orders/{order_id}/steps": "orders-dev-f-orders--steps",
        "HEAD /orders/{order_id}/steps": "orders-dev-f-orders--steps",
    }
    assert {key for key in routes if key.startswith("$")} == {"$connect", "$disconnect", "$default"}


def test_no_asynchronous_invocation_is_repeated_but_the_tick_which_may_be(pipeline: Synthesised) -> None:
    settings = [pipeline.core.properties(each) for each in pipeline.core.of("AWS::Lambda::EventInvokeConfig").values()]
    assert len(settings) == len(registered()) + len(SYSTEM)
    repeated = {each["FunctionName"]: each["MaximumRetryAttempts"] for each in settings if each["MaximumRetryAttempts"]}
    assert repeated == {"orders-dev-x-tick": 1}


def test_every_asynchronous_invocation_is_given_up_after_an_hour(pipeline: Synthesised) -> None:
    settings = [pipeline.core.properties(each) for each in pipeline.core.of("AWS::Lambda::EventInvokeConfig").values()]
    lambdas = [each["Properties"]["FunctionName"] for each in pipeline.core.of("AWS::Lambda::Function").values()]
    # The newest code, which is what everything invokes.
    assert {each["Qualifier"] for each in settings} == {"$LATEST"}
    assert {each["FunctionName"]: each["MaximumEventAgeInSeconds"] for each in settings} == dict.fromkeys(lambdas, 3600)


def test_the_runtime_is_started_each_minute_and_reads_the_stream_of_the_table_from_its_beginning(
    pipeline: Synthesised,
) -> None:
    core = pipeline.core
    tick = core.properties(core.one("AWS::Events::Rule", ScheduleExpression="cron(* * * * ? *)"))
    assert tick["Targets"][0]["Arn"] == NAMES.system_arn("tick")
    assert "InputTransformer" not in tick["Targets"][0]
    feed = core.properties(core.one("AWS::Lambda::EventSourceMapping", StartingPosition="TRIM_HORIZON"))
    assert feed["FunctionName"] == "orders-dev-x-feed"
    assert feed["EventSourceArn"] == "orders-dev.StreamArn"
    assert feed["BisectBatchOnFunctionError"] is True
    assert feed["ParallelizationFactor"] == 1
    assert (feed["MaximumRecordAgeInSeconds"], feed["MaximumRetryAttempts"]) == (3600, -1)
    assert feed["DestinationConfig"]["OnFailure"]["Destination"] == NAMES.queue_arn("orders-dev-x-feed-failures")
    patterns = [json.loads(each["Pattern"]) for each in feed["FilterCriteria"]["Filters"]]
    prefixes = [rule["prefix"] for each in patterns for rule in each["dynamodb"]["Keys"]["pk"]["S"]]
    assert prefixes == ["S#", "T#", "E#", "W#"]
    assert patterns[-1]["eventName"] == ["INSERT", "MODIFY"]
    assert patterns[-1]["dynamodb"]["Keys"]["sk"] == {"S": ["@"]}


def test_people_are_told_where_to_go(pipeline: Synthesised) -> None:
    outputs = pipeline.core.content["Outputs"]
    assert set(outputs) == {
        "HttpUrl",
        "WebSocketUrl",
        "TableName",
        "BucketName",
        "ProgressTopicArn",
        "AlarmTopicArn",
        "DashboardUrl",
        "Queues",
        "DeployedPlan",
    }
    assert json.loads(outputs["Queues"]["Value"])["order-payment"] == "orders-dev-q-order-payment.fifo"


def test_what_is_registered_and_declared_is_all_that_decides(tmp_path: Path) -> None:
    """A function, a queue and triggers more, and no line of `infra/` or `app.py` differs."""

    def register(worker: Worker, *, more: bool) -> None:
        def body(_data: object) -> None: ...

        worker.function("a::one")(body)
        if more:
            triggers: list[TriggerKind] = [Http("GET", "/two", auth="none"), Queue("fresh"), Cron("0 0 12 * * *")]
            worker.function("a::two", triggers=triggers)(body)

    few = Config(aws=AwsConfig(app="a"))
    many = Config(aws=AwsConfig(app="a"), queues={"fresh": QueueConfig(name="fresh")})
    before = synthesise(tmp_path / "1", manifest=manifest_of(few, lambda worker: register(worker, more=False))).core
    after = synthesise(tmp_path / "2", manifest=manifest_of(many, lambda worker: register(worker, more=True))).core
    added = [after.resources[key]["Type"] for key in after.resources.keys() - before.resources.keys()]
    assert before.resources.keys() <= after.resources.keys()
    assert sorted(added) == [
        "AWS::ApiGatewayV2::Integration",
        "AWS::ApiGatewayV2::Route",
        "AWS::ApiGatewayV2::Route",
        "AWS::CloudWatch::Alarm",
        "AWS::CloudWatch::Alarm",
        "AWS::Events::Rule",
        "AWS::IAM::Role",
        "AWS::Lambda::EventInvokeConfig",
        "AWS::Lambda::EventSourceMapping",
        "AWS::Lambda::Function",
        "AWS::Lambda::Permission",
        "AWS::Lambda::Permission",
        "AWS::Logs::LogGroup",
        "AWS::SQS::Queue",
        "AWS::SQS::Queue",
        "AWS::SQS::QueuePolicy",
        "AWS::SQS::QueuePolicy",
    ]


def test_a_route_keeps_its_identity_when_a_parameter_or_the_function_is_called_otherwise(tmp_path: Path) -> None:
    """Two resources with one route would stand in each other's way during a deployment."""

    def identities(out: Path, path: str, function_id: str) -> dict[str, str]:
        def register(worker: Worker) -> None:
            triggers: list[TriggerKind] = [Http("GET", path, auth="none"), Http("GET", "/orders/all", auth="none")]
            worker.function(function_id, triggers=triggers)(print)

        core = synthesise(out, manifest=manifest_of(Config(aws=AwsConfig(app="a")), register), alarms=False).core
        routes = core.of("AWS::ApiGatewayV2::Route").items()
        by_key = {each["Properties"]["RouteKey"]: key for key, each in routes}
        return {key: identity for key, identity in by_key.items() if key.startswith("GET ")}

    before = identities(tmp_path / "1", "/orders/:id", "a::get")
    after = identities(tmp_path / "2", "/orders/:order_id", "a::find")
    assert after == {"GET /orders/{order_id}": before["GET /orders/{id}"], "GET /orders/all": before["GET /orders/all"]}
    assert len(set(after.values())) == 2
