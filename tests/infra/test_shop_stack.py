"""Every kind of trigger and setting becomes what it should on AWS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iii_runtime import Worker
from iii_runtime.core.config import Config
from iii_runtime.core.config.values import StreamConfig
from iii_runtime.core.errors import HostError
from iii_runtime.plan.names import Deployment
from tests.infra.synthesis import Resource, Synthesised, manifest_of, synthesise

NAMES = Deployment(app="shop", stage="dev", region="eu-west-1", account="111122223333")


def route(shop: Synthesised, key: str) -> Resource:
    return shop.core.one("AWS::ApiGatewayV2::Route", RouteKey=key)


def test_a_lambda_is_as_the_stage_and_the_function_say(shop: Synthesised) -> None:
    order = shop.core.properties(shop.core.function("shop-dev-f-shop--order"))
    assert (order["MemorySize"], order["Architectures"], order["Runtime"]) == (512, ["arm64"], "python3.14")
    assert order["Timeout"] == 30 + 15
    assert order["Handler"] == "iii_runtime.hosts.aws_lambda.function.handler"
    assert shop.core.function("shop-dev-f-shop--pay")["Properties"]["MemorySize"] == 1024
    heard = shop.core.properties(shop.core.function("shop-dev-f-shop--heard"))
    assert heard["ReservedConcurrentExecutions"] == 5
    assert heard["Environment"]["Variables"] == {
        "III_APP": "shop",
        "III_STAGE": "dev",
        "III_ACCOUNT": "111122223333",
        "III_LOG_LEVEL": "INFO",
        "III_FUNCTION": "shop::heard",
        "III_TRACING": "1",
        "LANGUAGE": "en",
    }


def one_function(worker: Worker) -> None:
    worker.function("a::b", environment={"COLOUR": "blue"})(print)


def test_variables_for_all_functions_reach_those_that_are_registered(tmp_path: Path) -> None:
    manifest = manifest_of(Config(stream=StreamConfig(auth="iam")), one_function)
    added = {"LANGUAGE": "en", "COLOUR": "red"}
    core = synthesise(tmp_path, manifest=manifest, environment=added, alarms=False).core
    own = core.function("iii-dev-f-a--b")["Properties"]["Environment"]["Variables"]
    assert (own["LANGUAGE"], own["COLOUR"]) == ("en", "blue")
    for role in ("control", "dispatcher", "feed", "tick", "websocket"):
        assert "LANGUAGE" not in core.function(f"iii-dev-x-{role}")["Properties"]["Environment"]["Variables"]


def test_variables_that_take_more_than_lambda_allows_are_refused(tmp_path: Path) -> None:
    config = Config(stream=StreamConfig(auth="iam"))
    manifest = manifest_of(config, lambda worker: worker.function("a::b")(lambda data: data))
    with pytest.raises(
        HostError, match=r"test_shop_stack\.py:\d+: a::b: its environment variables take 4,\d\d\d"
    ) as refused:
        synthesise(tmp_path, manifest=manifest, environment={"LARGE": '"' * 2000})
    assert refused.value.code == "environment_too_large"


def test_a_secret_is_in_the_environment_by_its_source_alone(shop: Synthesised) -> None:
    variables = shop.core.properties(shop.core.function("shop-dev-f-shop--pay"))["Environment"]["Variables"]
    assert json.loads(variables["III_SECRETS"]) == {"CARD": "ssm:/shop/dev/card"}


def test_tracing_is_turned_on_for_all_lambdas_of_a_stage_that_wants_it(shop: Synthesised) -> None:
    functions = shop.core.of("AWS::Lambda::Function").values()
    assert {each["Properties"]["TracingConfig"]["Mode"] for each in functions} == {"Active"}


def test_the_recursion_guard_of_lambda_gives_way_where_messages_come_by(shop: Synthesised) -> None:
    open_to_messages = {
        each["Properties"]["FunctionName"]
        for each in shop.core.of("AWS::Lambda::Function").values()
        if each["Properties"].get("RecursiveLoop") == "Allow"
    }
    planned = {each.name for each in shop.app.plan.functions.values() if each.consumes}
    assert open_to_messages == planned
    assert "shop-dev-x-feed" not in open_to_messages


def test_an_ordered_queue_is_fifo_with_a_fifo_dead_letter_queue(shop: Synthesised) -> None:
    for name in ("pay", "mail"):
        for kind in ("q", "d"):
            queue = shop.core.one("AWS::SQS::Queue", QueueName=f"shop-dev-{kind}-{name}.fifo")["Properties"]
            assert queue["FifoQueue"] is True
            assert "ContentBasedDeduplication" not in queue
            assert (queue["DeduplicationScope"], queue["FifoThroughputLimit"]) == ("messageGroup", "perMessageGroupId")


def test_every_queue_is_encrypted_denies_plain_http_and_keeps_messages_for_14_days(shop: Synthesised) -> None:
    queues = shop.core.of("AWS::SQS::Queue")
    guarded = set()
    for policy in shop.core.of("AWS::SQS::QueuePolicy").values():
        denied = [each for each in policy["Properties"]["PolicyDocument"]["Statement"] if each["Effect"] == "Deny"]
        if any(each["Condition"] == {"Bool": {"aws:SecureTransport": "false"}} for each in denied):
            guarded |= {queue["Ref"] for queue in policy["Properties"]["Queues"]}
    assert guarded == set(queues)
    for queue in queues.values():
        properties = queue["Properties"]
        assert properties["SqsManagedSseEnabled"] is True
        expected = 3600 if properties["QueueName"] == "shop-dev-x-tick" else 14 * 24 * 3600
        assert properties["MessageRetentionPeriod"] == expected


def test_a_message_stays_hidden_longer_than_its_consumer_can_run(shop: Synthesised) -> None:
    timeouts = {
        each["Properties"]["FunctionName"]: each["Properties"]["Timeout"]
        for each in shop.core.of("AWS::Lambda::Function").values()
    }
    checked = 0
    for mapping in shop.core.of("AWS::Lambda::EventSourceMapping").values():
        properties = shop.core.properties(mapping)
        name = properties["EventSourceArn"].rpartition(":")[2]
        if ":sqs:" in properties["EventSourceArn"]:
            queue = shop.core.one("AWS::SQS::Queue", QueueName=name)["Properties"]
            assert queue["VisibilityTimeout"] > timeouts[properties["FunctionName"]]
            checked += 1
    assert checked == 8


def test_a_topic_fans_out_to_the_queue_of_each_subscription_as_it_was_published(shop: Synthesised) -> None:
    core = shop.core
    topic = core.one("AWS::SNS::Topic", TopicName="shop-dev-t-order-paid.fifo")
    assert topic["Properties"]["FifoTopic"] is True
    arn = f"arn:aws:sns:eu-west-1:111122223333:{topic['Properties']['TopicName']}"
    subscriptions = [
        core.properties(each)
        for each in core.of("AWS::SNS::Subscription").values()
        if each["Properties"]["Protocol"] == "sqs"
    ]
    paid = [each for each in subscriptions if each["TopicArn"] == arn]
    assert len(paid) == 2
    redriven = {}
    for each in subscriptions:
        assert each["RawMessageDelivery"] is True
        redriven[each["Endpoint"].rpartition(":")[2]] = each["RedrivePolicy"]["deadLetterTargetArn"]
    assert redriven == {
        "shop-dev-q-topic-order-paid-shop--ledger.fifo": NAMES.queue_arn(
            "shop-dev-d-topic-order-paid-shop--ledger.fifo"
        ),
        "shop-dev-q-topic-refund-shop--ledger": NAMES.queue_arn("shop-dev-d-topic-refund-shop--ledger"),
        # A FIFO topic needs a FIFO queue for what it cannot deliver, and this subscription has none of its own.
        "shop-dev-q-topic-order-paid-shop--audit": NAMES.queue_arn("shop-dev-x-topic-failures.fifo"),
    }


def test_only_the_topic_may_send_to_the_queues_of_its_subscriptions(shop: Synthesised) -> None:
    core = shop.core
    senders: dict[str, set[str]] = {}
    for policy in core.of("AWS::SQS::QueuePolicy").values():
        for statement in core.text(policy["Properties"]["PolicyDocument"]["Statement"]):
            if statement["Effect"] == "Allow" and statement["Principal"] == {"Service": "sns.amazonaws.com"}:
                queue = statement["Resource"].rpartition(":")[2]
                senders.setdefault(queue, set()).add(statement["Condition"]["ArnLike"]["aws:SourceArn"])
    subscribed = {queue for topic in shop.app.plan.topics for queue in topic.queues}
    assert senders.pop("shop-dev-x-topic-failures.fifo") == {NAMES.topic_pattern}
    assert set(senders) == subscribed | {queue.replace("-q-", "-d-") for queue in subscribed}
    assert all(len(topics) == 1 and "*" not in str(topics) for topics in senders.values())


def test_a_job_in_a_time_zone_is_a_schedule_at_exactly_its_time(shop: Synthesised) -> None:
    schedule = shop.core.properties(shop.core.one("AWS::Scheduler::Schedule"))
    assert schedule["ScheduleExpression"] == "cron(30 2 * * ? *)"
    assert schedule["ScheduleExpressionTimezone"] == "Europe/Berlin"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert schedule["GroupName"] == "shop-dev"
    target = schedule["Target"]
    assert target["DeadLetterConfig"]["Arn"] == NAMES.queue_arn("shop-dev-x-cron-failures")
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 120, "MaximumRetryAttempts": 10}


def test_the_group_of_the_schedules_is_there_before_they_are(shop: Synthesised) -> None:
    group = next(iter(shop.core.of("AWS::Scheduler::ScheduleGroup", Name="shop-dev")))
    assert shop.core.one("AWS::Scheduler::Schedule")["DependsOn"] == [group]


def test_a_job_by_the_second_is_left_to_the_tick(shop: Synthesised) -> None:
    assert [each.kind for each in shop.app.plan.schedules] == ["schedule", "rule", "tick"]
    expressions = {each["Properties"]["ScheduleExpression"] for each in shop.core.of("AWS::Events::Rule").values()}
    assert expressions == {"cron(0 * * * ? *)", "cron(* * * * ? *)"}


def test_rules_may_put_what_they_cannot_hand_over_on_a_queue_and_only_those_of_the_stage(shop: Synthesised) -> None:
    core = shop.core
    failures = next(iter(core.of("AWS::SQS::Queue", QueueName="shop-dev-x-cron-failures")))
    policy = core.one("AWS::SQS::QueuePolicy", Queues=[{"Ref": failures}])
    (allowed,) = [each for each in policy["Properties"]["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
    assert core.text(allowed["Condition"]) == {
        "ArnLike": {"aws:SourceArn": "arn:aws:events:eu-west-1:111122223333:rule/shop-dev-*"}
    }
    for rule in core.of("AWS::Events::Rule").values():
        target = core.properties(rule)["Targets"][0]
        assert target["DeadLetterConfig"]["Arn"] == NAMES.queue_arn("shop-dev-x-cron-failures")


@pytest.mark.parametrize(
    ("key", "authorization"),
    [
        ("POST /orders", "JWT"),
        ("GET /orders/{id}", "JWT"),
        ("GET /status", "NONE"),
        ("DELETE /orders/{id}", "AWS_IAM"),
        ("POST /_iii/stream-ticket", "JWT"),
    ],
)
def test_a_route_is_authorised_as_its_trigger_or_its_section_says(
    shop: Synthesised, key: str, authorization: str
) -> None:
    properties = route(shop, key)["Properties"]
    assert properties["AuthorizationType"] == authorization
    assert ("AuthorizerId" in properties) == (authorization == "JWT")


def test_tokens_are_taken_from_the_one_issuer(shop: Synthesised) -> None:
    authorizer = shop.core.one("AWS::ApiGatewayV2::Authorizer")["Properties"]
    assert authorizer["JwtConfiguration"] == {"Audience": ["shop"], "Issuer": "https://issuer.example"}


def test_a_function_with_several_routes_has_one_integration_and_one_permission(shop: Synthesised) -> None:
    targets = {
        route(shop, key)["Properties"]["Target"]["Fn::Join"][1][1]["Ref"]
        for key in ("POST /orders", "GET /orders/{id}", "GET /status")
    }
    assert len(targets) == 1
    permitted = [
        each
        for each in shop.core.of("AWS::Lambda::Permission").values()
        if shop.core.properties(each)["FunctionName"] == NAMES.function_arn("shop::order")
    ]
    assert len(permitted) == 1


def test_pages_of_the_listed_origins_may_call_and_no_others(shop: Synthesised) -> None:
    api = shop.core.one("AWS::ApiGatewayV2::Api", ProtocolType="HTTP")["Properties"]
    assert api["CorsConfiguration"]["AllowOrigins"] == ["https://shop.example"]
    assert api["CorsConfiguration"]["AllowMethods"] == ["GET"]
    assert "AllowCredentials" not in api["CorsConfiguration"]


def test_both_apis_are_throttled_and_http_requests_are_logged_without_path_and_body(shop: Synthesised) -> None:
    stages = shop.core.of("AWS::ApiGatewayV2::Stage").values()
    for stage in stages:
        limits = stage["Properties"]["DefaultRouteSettings"]
        assert (limits["ThrottlingRateLimit"], limits["ThrottlingBurstLimit"]) == (50, 100)
    http = shop.core.one("AWS::ApiGatewayV2::Stage", StageName="$default")["Properties"]
    shown = json.loads(http["AccessLogSettings"]["Format"])
    assert shown["route"] == "$context.routeKey"
    assert not {"$context.path", "$context.requestOverride"} & set(shown.values())


@pytest.mark.parametrize(
    ("app", "auth", "expected"),
    [("production", "iam", "AWS_IAM"), ("shop", "ticket", "NONE"), ("pipeline", "none", "NONE")],
)
def test_a_connection_is_authorised_as_the_streams_say(
    request: pytest.FixtureRequest, app: str, auth: str, expected: str
) -> None:
    made: Synthesised = request.getfixturevalue(app)
    assert made.app.plan.stream_auth == auth
    connect = made.core.one("AWS::ApiGatewayV2::Route", RouteKey="$connect")["Properties"]
    assert connect["AuthorizationType"] == expected
    tickets = made.core.of("AWS::ApiGatewayV2::Route", RouteKey="POST /_iii/stream-ticket")
    assert (tickets != {}) == (auth == "ticket")


def test_the_table_has_its_indexes_its_stream_and_its_expiry(shop: Synthesised) -> None:
    table = shop.core.one("AWS::DynamoDB::GlobalTable", TableName="shop-dev")["Properties"]
    assert [(key["AttributeName"], key["KeyType"]) for key in table["KeySchema"]] == [("pk", "HASH"), ("sk", "RANGE")]
    indexes = {
        each["IndexName"]: ([key["AttributeName"] for key in each["KeySchema"]], each["Projection"]["ProjectionType"])
        for each in table["GlobalSecondaryIndexes"]
    }
    assert indexes == {"letters": (["dq", "dt"], "KEYS_ONLY"), "names": (["nk", "nr"], "KEYS_ONLY")}
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    assert types == {"pk": "S", "sk": "S", "dq": "S", "dt": "N", "nk": "S", "nr": "S"}
    assert table["StreamSpecification"] == {"StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert table["TimeToLiveSpecification"] == {"AttributeName": "ttl", "Enabled": True}
    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert table["Replicas"][0]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


def test_the_bucket_takes_no_request_without_tls_1_2(shop: Synthesised) -> None:
    policy = shop.core.one("AWS::S3::BucketPolicy")["Properties"]["PolicyDocument"]["Statement"]
    denied = [each["Condition"] for each in policy if each["Effect"] == "Deny"]
    assert {"Bool": {"aws:SecureTransport": "false"}} in denied
    assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in denied


def test_what_nothing_names_any_more_leaves_the_bucket(shop: Synthesised) -> None:
    bucket = shop.core.one("AWS::S3::Bucket")["Properties"]
    rules = {each["Id"]: each for each in bucket["LifecycleConfiguration"]["Rules"]}
    assert (rules["payloads"]["Prefix"], rules["payloads"]["ExpirationInDays"]) == ("payloads/", 60)
    assert rules["replaced-state"]["TagFilters"] == [{"Key": "iii-expire", "Value": "true"}]
    assert (rules["replaced-state"]["Prefix"], rules["replaced-state"]["ExpirationInDays"]) == ("state/", 7)
    assert (rules["responses"]["Prefix"], rules["responses"]["ExpirationInDays"]) == ("responses/", 2)
    assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
    assert shop.core.text(bucket["BucketName"]) == "shop-dev-blobs-111122223333-eu-west-1"


def test_the_progress_of_streams_is_published_encrypted(shop: Synthesised) -> None:
    topic = shop.core.one("AWS::SNS::Topic", TopicName="shop-dev-x-progress")["Properties"]
    assert topic["KmsMasterKeyId"] == "alias/aws/sns"


def test_in_a_stage_that_is_not_of_production_everything_goes_with_the_stack(shop: Synthesised) -> None:
    assert {each.get("DeletionPolicy", "Delete") for each in shop.core.resources.values()} == {"Delete"}


def test_everything_that_can_be_is_tagged_with_app_and_stage(shop: Synthesised) -> None:
    tags = shop.core.function("shop-dev-f-shop--pay")["Properties"]["Tags"]
    assert tags == [{"Key": "iii:app", "Value": "shop"}, {"Key": "iii:stage", "Value": "dev"}]
