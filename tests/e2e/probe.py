"""A stack with one resource of each type that a stage is made of, as small as the emulator takes it."""

from __future__ import annotations

from typing import Any

NAME = "probe"

_CODE = """
import json

def handler(event, context):
    for record in event.get("Records", []):
        print("RECORD", json.dumps(record))
    if "requestContext" in event:
        route = event.get("routeKey") or event["requestContext"]["routeKey"]
        return {"statusCode": 200, "body": json.dumps({"route": route})}
    return {"echo": event}
"""


def template() -> dict[str, Any]:
    """Return the template."""
    return {"AWSTemplateFormatVersion": "2010-09-09", "Resources": _resources()}


def types() -> set[str]:
    """Return the types of the resources in it."""
    return {resource["Type"] for resource in _resources().values()}


def _resources() -> dict[str, dict[str, Any]]:
    return {**_compute(), **_storage(), **_messaging(), **_gateways(), **_observation()}


def _compute() -> dict[str, dict[str, Any]]:
    return {
        "Role": _resource(
            "IAM::Role",
            AssumeRolePolicyDocument=_policy("sts:AssumeRole", Principal={"Service": "lambda.amazonaws.com"}),
        ),
        "Function": _resource(
            "Lambda::Function",
            FunctionName=NAME,
            Runtime="python3.11",
            Handler="index.handler",
            Code={"ZipFile": _CODE},
            Role=_arn("Role"),
            RecursiveLoop="Allow",
            LoggingConfig={"LogGroup": {"Ref": "Logs"}},
        ),
        "Invocations": _resource(
            "Lambda::EventInvokeConfig",
            FunctionName={"Ref": "Function"},
            Qualifier="$LATEST",
            MaximumRetryAttempts=0,
            MaximumEventAgeInSeconds=3600,
        ),
        "Permission": _resource(
            "Lambda::Permission",
            Action="lambda:InvokeFunction",
            FunctionName={"Ref": "Function"},
            Principal="apigateway.amazonaws.com",
        ),
        "QueueMapping": _resource(
            "Lambda::EventSourceMapping",
            EventSourceArn=_arn("Queue"),
            FunctionName={"Ref": "Function"},
            FunctionResponseTypes=["ReportBatchItemFailures"],
            BatchSize=1,
        ),
        "StreamMapping": _resource(
            "Lambda::EventSourceMapping",
            EventSourceArn={"Fn::GetAtt": ["Table", "StreamArn"]},
            FunctionName={"Ref": "Function"},
            StartingPosition="TRIM_HORIZON",
            FunctionResponseTypes=["ReportBatchItemFailures"],
            BisectBatchOnFunctionError=True,
        ),
    }


def _storage() -> dict[str, dict[str, Any]]:
    key = [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}]
    return {
        "Table": _resource(
            "DynamoDB::GlobalTable",
            TableName=NAME,
            BillingMode="PAY_PER_REQUEST",
            KeySchema=key,
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
            Replicas=[{"Region": {"Ref": "AWS::Region"}}],
            StreamSpecification={"StreamViewType": "NEW_AND_OLD_IMAGES"},
            TimeToLiveSpecification={"AttributeName": "ttl", "Enabled": True},
        ),
        "Bucket": _resource(
            "S3::Bucket",
            BucketName=NAME,
            LifecycleConfiguration={"Rules": [{"Id": "old", "ExpirationInDays": 1, "Status": "Enabled"}]},
        ),
        "BucketPolicy": _resource(
            "S3::BucketPolicy",
            Bucket={"Ref": "Bucket"},
            PolicyDocument=_policy("s3:*", Effect="Deny", Principal="*", Resource=_arn("Bucket"), Condition=_NO_TLS),
        ),
    }


def _messaging() -> dict[str, dict[str, Any]]:
    return {
        "Letters": _resource("SQS::Queue", QueueName=f"{NAME}-letters"),
        "Queue": _resource(
            "SQS::Queue",
            QueueName=NAME,
            RedrivePolicy={"deadLetterTargetArn": _arn("Letters"), "maxReceiveCount": 2},
        ),
        "Inbox": _resource("SQS::Queue", QueueName=f"{NAME}-inbox"),
        "QueuePolicy": _resource(
            "SQS::QueuePolicy",
            Queues=[{"Ref": "Inbox"}],
            PolicyDocument=_policy("sqs:SendMessage", Principal={"Service": "sns.amazonaws.com"}, Resource="*"),
        ),
        "Topic": _resource("SNS::Topic", TopicName=NAME),
        "TopicPolicy": _resource(
            "SNS::TopicPolicy",
            Topics=[{"Ref": "Topic"}],
            PolicyDocument=_policy("sns:Publish", Effect="Deny", Principal="*", Resource="*", Condition=_NO_TLS),
        ),
        "Subscription": _resource(
            "SNS::Subscription",
            TopicArn={"Ref": "Topic"},
            Protocol="sqs",
            Endpoint=_arn("Inbox"),
            RawMessageDelivery=True,
        ),
        "Rule": _resource(
            "Events::Rule",
            Name=NAME,
            ScheduleExpression="cron(0 0 1 1 ? *)",
            Targets=[{"Id": "function", "Arn": _arn("Function")}],
        ),
    }


def _gateways() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for kind, route in (("HTTP", "GET /probe"), ("WEBSOCKET", "$default")):
        extra = {"RouteSelectionExpression": "$request.body.action"} if kind == "WEBSOCKET" else {}
        found[f"{kind}Api"] = _resource("ApiGatewayV2::Api", Name=f"{NAME}-{kind}", ProtocolType=kind, **extra)
        found[f"{kind}Integration"] = _resource(
            "ApiGatewayV2::Integration",
            ApiId={"Ref": f"{kind}Api"},
            IntegrationType="AWS_PROXY",
            IntegrationUri=_arn("Function"),
            PayloadFormatVersion="2.0" if kind == "HTTP" else "1.0",
        )
        found[f"{kind}Route"] = _resource(
            "ApiGatewayV2::Route",
            ApiId={"Ref": f"{kind}Api"},
            RouteKey=route,
            Target={"Fn::Join": ["", ["integrations/", {"Ref": f"{kind}Integration"}]]},
        )
        found[f"{kind}Stage"] = _resource(
            "ApiGatewayV2::Stage",
            ApiId={"Ref": f"{kind}Api"},
            StageName="$default" if kind == "HTTP" else "live",
            AutoDeploy=True,
        )
    return found


def _observation() -> dict[str, dict[str, Any]]:
    return {
        "Logs": _resource("Logs::LogGroup", LogGroupName=f"/aws/lambda/{NAME}", RetentionInDays=1),
        "Dashboard": _resource("CloudWatch::Dashboard", DashboardName=NAME, DashboardBody='{"widgets":[]}'),
        "Alarm": _resource(
            "CloudWatch::Alarm",
            AlarmName=NAME,
            Namespace="iii",
            MetricName="Probed",
            Statistic="Sum",
            Period=60,
            EvaluationPeriods=1,
            Threshold=1,
            ComparisonOperator="GreaterThanOrEqualToThreshold",
        ),
    }


_NO_TLS = {"Bool": {"aws:SecureTransport": "false"}}


def _resource(kind: str, **properties: Any) -> dict[str, Any]:
    return {"Type": f"AWS::{kind}", "Properties": properties}


def _policy(action: str, **statement: Any) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, **statement}]}


def _arn(resource: str) -> dict[str, Any]:
    return {"Fn::GetAtt": [resource, "Arn"]}
