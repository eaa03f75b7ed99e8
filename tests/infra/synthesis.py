"""Synthesises apps without a bundle, and reads templates by what they mean."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, Unpack

# Before the first app: the validator takes seconds at each synthesis. One test runs it.
os.environ.setdefault("CDK_VALIDATION", "false")

import aws_cdk as cdk
from aws_cdk import aws_lambda as lambda_

from iii_runtime import Worker, register_worker
from iii_runtime.cdk import IiiStacks
from iii_runtime.cdk.settings import AppSettings, Synthesis, prepare
from iii_runtime.core.config import Config
from iii_runtime.plan.manifest import describe_app

ROOT = Path(__file__).resolve().parents[2]
CDK_JSON: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())
NAMES = {
    "AWS::Region": "eu-west-1",
    "AWS::AccountId": "111122223333",
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
}

Resource: TypeAlias = Mapping[str, Any]


def a_code() -> lambda_.Code:
    """Return code that needs no bundle."""
    return lambda_.Code.from_inline("def handler(event, context): ...")


def manifest_of(config: Config, register: Callable[[Worker], object]) -> dict[str, Any]:
    """Return the manifest of an app, as the child process that imports code would."""
    worker = register_worker(worker_name="shop")
    register(worker)
    return dict(describe_app(config, [worker], ["shop"]))


def new_app(out: Path, **context: str) -> cdk.App:
    """Return a CDK app with the context of cdk.json."""
    return cdk.App(outdir=str(out), context={**CDK_JSON["context"], **context}, analytics_reporting=False)


@dataclass(frozen=True)
class Template:
    """A template, as CloudFormation is given it."""

    name: str
    content: Mapping[str, Any]

    @property
    def resources(self) -> dict[str, Any]:
        """All resources by their logical ids."""
        return dict(self.content.get("Resources", {}))

    def of(self, kind: str, **properties: object) -> dict[str, Resource]:
        """Return the resources of a type that have these properties, by their logical ids."""
        return {
            key: resource
            for key, resource in self.resources.items()
            if resource["Type"] == kind
            and all(resource["Properties"].get(name) == value for name, value in properties.items())
        }

    def one(self, kind: str, **properties: object) -> Resource:
        """Return the one resource of a type that has these properties."""
        found = self.of(kind, **properties)
        assert len(found) == 1, (kind, properties, list(found))
        return next(iter(found.values()))

    def text(self, value: object) -> Any:
        """Return a value with what CloudFormation fills in: names of pseudo parameters, ARNs by names."""
        match value:
            case {"Ref": name}:
                if self.resources.get(name, {}).get("Type") == "AWS::SNS::Topic":
                    return self._arn(name)
                return NAMES.get(name) or self._named(name)
            case {"Fn::GetAtt": [name, "Arn"]}:
                return self._arn(name)
            case {"Fn::GetAtt": [name, attribute]}:
                return f"{self._named(name)}.{attribute}"
            case {"Fn::Join": [separator, parts]}:
                return separator.join(self.text(part) for part in parts)
            case dict():
                return {key: self.text(each) for key, each in value.items()}
            case list():
                return [self.text(each) for each in value]
            case _:
                return value

    def properties(self, resource: Resource) -> dict[str, Any]:
        """Return the properties with everything filled in."""
        filled: dict[str, Any] = self.text(resource["Properties"])
        return filled

    def function(self, name: str) -> Resource:
        """Return a Lambda by its name on AWS."""
        return self.one("AWS::Lambda::Function", FunctionName=name)

    def statements(self, function_name: str) -> list[dict[str, Any]]:
        """Return what the role of a Lambda may do."""
        role = self.function(function_name)["Properties"]["Role"]["Fn::GetAtt"][0]
        return [
            statement
            for policy in self.resources[role]["Properties"]["Policies"]
            for statement in self.text(policy["PolicyDocument"]["Statement"])
        ]

    def allowed(self, function_name: str, action: str) -> set[str]:
        """Return the resources on which the role of a Lambda may do something."""
        return {
            resource
            for statement in self.statements(function_name)
            if action in as_list(statement["Action"])
            for resource in as_list(statement["Resource"])
        }

    def _named(self, logical_id: str) -> str:
        properties = self.resources.get(logical_id, {"Properties": {}})["Properties"]
        names = ("FunctionName", "QueueName", "TopicName", "TableName", "BucketName", "Name", "LogGroupName")
        return next((str(self.text(properties[name])) for name in names if name in properties), logical_id)

    def _arn(self, logical_id: str) -> str:
        resource = self.resources[logical_id]
        service, kind = {
            "AWS::Lambda::Function": ("lambda", "function:"),
            "AWS::SQS::Queue": ("sqs", ""),
            "AWS::SNS::Topic": ("sns", ""),
            "AWS::Events::Rule": ("events", "rule/"),
            "AWS::DynamoDB::GlobalTable": ("dynamodb", "table/"),
            "AWS::Logs::LogGroup": ("logs", "log-group:"),
        }.get(resource["Type"], (resource["Type"], ""))
        return f"arn:aws:{service}:eu-west-1:111122223333:{kind}{self._named(logical_id)}"


@dataclass(frozen=True)
class Synthesised:
    """What a synthesis leaves."""

    app: IiiStacks
    templates: Mapping[str, Template]

    @property
    def core(self) -> Template:
        """The template of the first stack."""
        return next(iter(self.templates.values()))


def synthesise(out: Path, *, context: Mapping[str, str] | None = None, **settings: Unpack[AppSettings]) -> Synthesised:
    """Synthesise an app in stacks of its own.

    Args:
        out: Where the templates are written.
        context: What `-c` would give.
        **settings: Of the constructs; inline code by default.
    """
    given: AppSettings = {"code": a_code(), "project_root": out, **settings}
    app = new_app(out / "cdk.out", **(context or {}))
    stacks = IiiStacks(app, **given)
    app.synth()
    return Synthesised(app=stacks, templates=dict(_templates(out / "cdk.out", [s.stack_name for s in stacks.stacks])))


def prepared(root: Path, *, context: Mapping[str, str] | None = None, **settings: Unpack[AppSettings]) -> Synthesis:
    """Return what an app would be synthesised from, which takes no construct."""
    given: AppSettings = {"code": a_code(), "project_root": root, **settings}
    return prepare(new_app(root / "cdk.out", **(context or {})), given)


def as_list(value: object) -> list[Any]:
    """Return a member that CloudFormation lets be one or many, as many."""
    return value if isinstance(value, list) else [value]


def _templates(out: Path, names: Sequence[str]) -> Iterator[tuple[str, Template]]:
    for name in names:
        yield name, Template(name=name, content=json.loads((out / f"{name}.template.json").read_text()))
