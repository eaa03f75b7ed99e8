"""What AWS would refuse in the middle of a deployment is found before, with its place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iii_runtime import Cron, DurableSubscriber, Http
from iii_runtime.core.config.values import AwsConfig, CorsConfig, HttpConfig, JwtConfig, StageConfig
from iii_runtime.core.errors import RegistrationError
from iii_runtime.plan.aws_texts import RESERVED_APPS
from tests.unit.planning import DEV, add, config_with, messages, planned, refused, staged, worker_with

JWT = JwtConfig(issuer="https://login.example.com/", audience=("shop",))


def browsers(**cors: tuple[str, ...]) -> Any:
    return config_with(http=HttpConfig(auth="none", cors=CorsConfig(**cors), line=7))


@pytest.mark.parametrize("methods", [("GTE",), ("PURGE", "GET"), ("ANY",), ("get",)])
def test_a_method_of_cors_that_no_route_can_have_is_refused(methods: tuple[str, ...]) -> None:
    (finding,) = refused(worker_with(Http("GET", "/a")), browsers(allowed_methods=methods))
    assert finding.where == "iii-config.yaml:7"
    assert finding.message.startswith(f"`cors.allowed_methods` has {methods[0]}, and no route can have that.")


@pytest.mark.parametrize("origin", ["https://*", "http://*", "https://*.example.com"])
def test_an_origin_that_is_a_pattern_is_refused(origin: str) -> None:
    (finding,) = refused(worker_with(Http("GET", "/a")), browsers(allowed_origins=(origin,)))
    assert (finding.where, origin in finding.message) == ("iii-config.yaml:7", True)


@pytest.mark.parametrize("origin", ["null", "capacitor://localhost", "https://größe.example", "https://u@a.example"])
def test_an_origin_that_api_gateway_may_not_know_is_worth_a_warning(origin: str) -> None:
    (finding,) = planned(worker_with(Http("GET", "/a")), browsers(allowed_origins=(origin,))).warnings
    assert finding.message.startswith("`cors.allowed_origins` has ")


def test_origins_and_methods_that_there_are_pass() -> None:
    origins = ("https://a.example", "http://localhost:3000", "http://127.0.0.1:80", "http://[::1]:80")
    config = browsers(allowed_origins=origins, allowed_methods=("GET", "OPTIONS", "PATCH"))
    assert planned(worker_with(Http("GET", "/a")), config).warnings == ()


@pytest.mark.parametrize(
    "issuer", ["https://?x", "https://a.example/#k", "https://u:p@a.example/", "https://a.example/ö"]
)
def test_an_issuer_whose_keys_cannot_be_found_is_refused(issuer: str) -> None:
    config = config_with(http=HttpConfig(auth="iam", jwt=replace(JWT, issuer=issuer), line=7))
    (finding,) = refused(worker_with(), config)
    assert finding.where == "iii-config.yaml:7"
    assert finding.message.startswith("`jwt.issuer` ")


@pytest.mark.parametrize("issuer", ["https://a.example", "https://a.example:8443/x/", "https://a.example/v2.0/~t/p"])
def test_an_issuer_with_host_and_path_passes(issuer: str) -> None:
    config = config_with(http=HttpConfig(auth="iam", jwt=replace(JWT, issuer=issuer)))
    assert planned(worker_with(), config).warnings == ()


@pytest.mark.parametrize("begin", RESERVED_APPS)
def test_an_app_whose_bucket_could_have_no_such_name_is_refused(begin: str) -> None:
    deployment = replace(DEV, app=f"{begin}shop")
    (finding,) = refused(worker_with(), config_with(aws=AwsConfig(app=deployment.app, line=3)), deployment)
    assert finding.where == "iii-config.yaml:3"
    assert f"begins with '{begin}'" in finding.message


@pytest.mark.parametrize("letter", ["\n", "\x7f", "\x85"])
def test_a_control_character_in_a_name_is_refused(letter: str) -> None:
    worker = worker_with(DurableSubscriber(f"or{letter}der"))
    add(worker, f"shop::{letter}")
    found = messages(refused(worker))
    assert [each.partition(" ")[0] for each in found] == ["function", "topic"]


def test_names_that_would_be_one_construct_are_refused() -> None:
    # Long enough for a hash, so that their names on AWS differ.
    long = "x" * 90
    worker = worker_with(DurableSubscriber(f"{long}/a"), DurableSubscriber(f"{long}|a"))
    add(worker, f"{long}/f")
    add(worker, f"{long}|f")
    assert len([each for each in messages(refused(worker)) if "differ in '/' and '|' alone" in each]) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"environment": {"A": "x"}}, "has 'A', and Lambda wants two letters or more"),
        ({"environment": {"AB": "x\0y"}}, "has a NUL character in 'AB'"),
        ({"secrets": {"KEY": "ssm:/shop/card key"}}, "its secret KEY is read from 'ssm:/shop/card key'"),
        ({"secrets": {"KEY": "secretsmanager:ключ"}}, "its secret KEY is read from "),
        ({"secrets": {"KEY": "ssm:/{app}/card"}}, "Only `{stage}` is filled in."),
    ],
)
def test_what_a_function_asks_for_and_lambda_cannot_give_is_refused(options: dict[str, Any], message: str) -> None:
    worker = worker_with(**options)
    (finding,) = refused(worker)
    assert (message in finding.message, finding.where) == (True, worker.registry.functions()[0].source)


@pytest.mark.parametrize(
    "source",
    [
        "ssm:/shop/{stage}/card",
        "ssm:card:3",
        "ssm:arn:aws:ssm:eu-west-1:123456789012:parameter/shop/card",
        "secretsmanager:shop/{stage}+card=a@b.c_d-e",
    ],
)
def test_a_secret_by_name_or_arn_passes(source: str) -> None:
    assert planned(worker_with(secrets={"KEY": source})).warnings == ()


@pytest.mark.parametrize("zone", ["posixrules", "localtime", "posix/Europe/Berlin", "right/Europe/Berlin", "Factory"])
def test_a_time_zone_of_this_machine_alone_is_refused_where_aws_would_have_to_know_it(zone: str) -> None:
    try:
        trigger = Cron("0 0 9 * * *", timezone=zone)
    except RegistrationError:
        pytest.skip("this machine does not have it")
    (finding,) = refused(worker_with(trigger))
    assert f"time zone '{zone}' is of this machine" in finding.message
    # The tick of each minute works the zone out itself.
    assert planned(worker_with(Cron("5 0 9 * * *", timezone=zone))).warnings == ()


def test_settings_of_the_stage_that_aws_does_not_take_are_found() -> None:
    (finding,) = refused(worker_with(), config_with(aws=staged(throttle_burst=2**31)))
    assert (finding.where, finding.message[:28]) == ("iii-config.yaml:3", "`throttle_burst` is 21474836")
    late = config_with(aws=staged(oldest_message_alarm_s=1801))
    (finding,) = planned(worker_with(), late).warnings
    assert (finding.where, "raised at 1800 s all the same" in finding.message) == ("iii-config.yaml:3", True)
    assert planned(worker_with(), config_with(aws=staged(oldest_message_alarm_s=1800))).warnings == ()
    assert StageConfig().oldest_message_alarm_s <= 1800
