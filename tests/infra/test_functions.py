"""Every Lambda is as its function and the stage say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iii_runtime import Worker
from iii_runtime.core.config import Config
from iii_runtime.core.config.values import StreamConfig
from iii_runtime.core.errors import HostError
from tests.infra.synthesis import Synthesised, manifest_of, synthesise


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
        HostError, match=r"test_functions\.py:\d+: a::b: its environment variables take 4,\d\d\d"
    ) as refused:
        synthesise(tmp_path, manifest=manifest, environment={"LARGE": '"' * 2000})
    assert refused.value.code == "environment_too_large"


def test_a_variable_that_lambda_would_not_take_is_refused_by_name(tmp_path: Path) -> None:
    manifest = manifest_of(Config(stream=StreamConfig(auth="iam")), one_function)
    with pytest.raises(HostError, match="environment has 'TOO-LONG'") as refused:
        synthesise(tmp_path, manifest=manifest, environment={"TOO-LONG": "x"}, alarms=False)
    assert refused.value.code == "environment_invalid"


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


def test_in_a_stage_that_is_not_of_production_everything_goes_with_the_stack(shop: Synthesised) -> None:
    assert {each.get("DeletionPolicy", "Delete") for each in shop.core.resources.values()} == {"Delete"}


def test_everything_that_can_be_is_tagged_with_app_and_stage(shop: Synthesised) -> None:
    tags = shop.core.function("shop-dev-f-shop--pay")["Properties"]["Tags"]
    assert tags == [{"Key": "iii:app", "Value": "shop"}, {"Key": "iii:stage", "Value": "dev"}]
