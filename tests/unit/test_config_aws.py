"""What the configuration says about AWS: the section `iii-aws`, and who may come in."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent

import pytest

from iii_runtime.adapters.config_file import read_document
from iii_runtime.core.config import (
    AwsConfig,
    Config,
    ConfigError,
    JwtConfig,
    StageConfig,
    parse_config,
)
from iii_runtime.core.config.stored import config_from_json, config_to_json
from iii_runtime.core.config.values import is_production

SECTION = "workers:\n  - name: iii-aws\n    config:\n      "
HTTP = "workers:\n  - name: iii-http\n    config:\n      "
AT = "c.yaml:4: workers[0].config"


def parse(text: str, **env: str) -> Config:
    return parse_config(dedent(text), source="c.yaml", env=env, load=read_document)


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return [str(problem) for problem in caught.value.problems]


def test_without_the_section_nobody_plans_to_deploy() -> None:
    config = parse("workers: []")
    assert config.aws == AwsConfig()
    assert config.aws.line is None
    assert config.aws.stage("dev") == StageConfig()


def test_the_section_gives_every_stage_what_the_stage_does_not_say_otherwise() -> None:
    config = parse(
        """\
        workers:
          - name: iii-http
          - name: iii-aws
            config:
              app: orders
              memory_mb: 256
              tracing: true
              python: "3.13"
              stages:
                prod: {memory_mb: 1024, stacks: 4, log_retention_days: 365}
                load: {production: true, throttle_rate: 5000, throttle_burst: 9000}
        """
    )
    assert (config.aws.app, config.aws.line, config.http.line) == ("orders", 3, 2)
    assert config.aws.stage("dev") == StageConfig(memory_mb=256, tracing=True, python="3.13")
    shared = StageConfig(memory_mb=256, tracing=True, python="3.13", production=True)
    assert config.aws.stage("prod") == replace(shared, memory_mb=1024, stacks=4, log_retention_days=365)
    assert config.aws.stage("load") == replace(shared, throttle_rate=5000, throttle_burst=9000)


@pytest.mark.parametrize(("name", "expected"), [("prod", True), ("production", True), ("dev", False), ("prod2", False)])
def test_a_stage_called_prod_is_one_of_production_even_if_the_file_does_not_mention_it(
    name: str, expected: bool
) -> None:
    assert is_production(name) is expected
    assert parse("workers: [{name: iii-aws}]").aws.stage(name).production is expected


def test_a_stage_called_prod_can_be_declared_harmless() -> None:
    assert not parse(SECTION + "stages: {prod: {production: false}}\n").aws.stage("prod").production


PYTHONS = "'3.11', '3.12', '3.13', '3.14' or '3.15'"
BAD = [
    ("app: Orders", "app: expected an app name of lower-case letters, digits and '-', 24 at most, found 'Orders'"),
    ("app: 4orders", "app: expected an app name of lower-case letters, digits and '-', 24 at most, found '4orders'"),
    ("stages: {Prod: {}}", "stages.Prod: expected a stage name of 2 to 12 lower-case letters and digits, found 'Prod'"),
    ("stages: {a: {}}", "stages.a: expected a stage name of 2 to 12 lower-case letters and digits, found 'a'"),
    ("stages: {prod: {memory: 1}}", "stages.prod.memory: unknown key; did you mean `memory_mb`?"),
    ("stages: {prod: {stages: {}}}", "stages.prod.stages: unknown key; did you mean `stacks`?"),
    ("stages: {prod: {app: x}}", "stages.prod.app: unknown key; known here: "),
    ("stages: {prod: 3}", "stages.prod: expected a mapping, found 3"),
    ("stages: [prod]", "stages: expected a mapping, found a list"),
    ("memory_mb: 127", "memory_mb: expected an integer >= 128, found 127"),
    ("memory_mb: 10241", "memory_mb: expected an integer <= 10240, found 10241"),
    ("architecture: arm", "architecture: expected 'arm64' or 'x86_64', found 'arm'"),
    ("python: 3.14", f"python: expected {PYTHONS}, found 3.14"),
    ("python: '2.7'", f"python: expected {PYTHONS}, found '2.7'"),
    ("python: '3.9'", f"python: expected {PYTHONS}, found '3.9'"),
    ("python: '3.10'", f"python: expected {PYTHONS}, found '3.10'"),
    ("python: '3.99'", f"python: expected {PYTHONS}, found '3.99'"),
    ("python: '3.14.1'", f"python: expected {PYTHONS}, found '3.14.1'"),
    ("stages: {prod: {python: '3.9'}}", f"stages.prod.python: expected {PYTHONS}, found '3.9'"),
    ("memory_mb: '512'", "memory_mb: expected an integer, found '512'"),
    ("memory_mb: 512.5", "memory_mb: expected an integer, found 512.5"),
    ("memory_mb: true", "memory_mb: expected an integer, found true"),
    ("architecture: 64", "architecture: expected 'arm64' or 'x86_64', found 64"),
    ("log_retention_days: '30'", "log_retention_days: expected 1, 3, 5,"),
    ("throttle_rate: 2147483648", "throttle_rate: expected an integer <= 2147483647, found 2147483648"),
    ("throttle_burst: 2147483648", "throttle_burst: expected an integer <= 2147483647, found 2147483648"),
    ("oldest_message_alarm_s: 1209601", "oldest_message_alarm_s: expected an integer <= 1209600, found 1209601"),
    ("stacks: 1.0", "stacks: expected an integer, found 1.0"),
    ("stacks: 0", "stacks: expected an integer >= 1, found 0"),
    ("stacks: 51", "stacks: expected an integer <= 50, found 51"),
    ("throttle_rate: 0", "throttle_rate: expected an integer >= 1, found 0"),
    ("oldest_message_alarm_s: 59", "oldest_message_alarm_s: expected an integer >= 60, found 59"),
    ("tracing: yes", "tracing: expected true or false, found 'yes'"),
    ("production: true", "production: belongs to one stage: write it under `stages:`, below the stage's name"),
    ("production: false", "production: belongs to one stage: write it under `stages:`, below the stage's name"),
    ("region: eu-west-1", "region: unknown key; known here: "),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_a_mistake_in_the_section_is_one_problem_at_its_place(line: str, message: str) -> None:
    (problem,) = problems(f"{SECTION}{line}\n")
    assert problem.startswith(f"{AT}.{message}")


def test_a_retention_that_cloudwatch_does_not_have_is_told_which_it_has() -> None:
    (problem,) = problems(f"{SECTION}log_retention_days: 31\n")
    assert problem.startswith(f"{AT}.log_retention_days: expected 1, 3, 5, 7, 14, 30,")
    assert problem.endswith("or 731, found 31")


def test_two_sections_are_one_too_many() -> None:
    assert "declared twice" in problems("workers: [{name: iii-aws}, {name: aws}]")[0]


def test_who_may_come_in_is_read_and_null_leaves_it_to_the_stage() -> None:
    text = HTTP + "auth: ${AUTH:null}\n      jwt: {issuer: 'https://a.example', audience: [shop]}\n"
    assert parse(text).http.auth is None
    config = parse(text, AUTH="jwt")
    assert (config.http.auth, config.http.jwt) == ("jwt", JwtConfig(issuer="https://a.example", audience=("shop",)))
    stream = parse("workers: [{name: iii-stream, config: {auth: ticket}}]").stream
    assert (stream.auth, stream.line) == ("ticket", 1)


BAD_ACCESS = [
    ("auth: open", ["auth: expected 'iam', 'jwt' or 'none', found 'open'"]),
    ("jwt: {issuer: 'http://a', audience: [b]}", ["jwt.issuer: expected the https URL of an issuer, found 'http://a'"]),
    ("jwt: {issuer: 'https://a', audience: []}", ["jwt.audience: expected a list that is not empty, found a list"]),
    ("jwt: {issuer: 'https://a', audience: ['']}", ["jwt.audience[0]: expected a text that is not empty, found ''"]),
    ("jwt: {issuer: 'https://a'}", ["jwt.audience: expected a value (this key is needed), found nothing"]),
    (
        "jwt: {isuer: 'https://a', audience: [b]}",
        [
            "jwt.issuer: expected a value (this key is needed), found nothing",
            "jwt.isuer: unknown key; did you mean `issuer`?",
        ],
    ),
    ("jwt: 5", ["jwt: expected a mapping, found 5"]),
]


@pytest.mark.parametrize(("line", "messages"), BAD_ACCESS)
def test_a_mistake_in_who_may_come_in_is_a_problem_at_its_place(line: str, messages: list[str]) -> None:
    assert problems(f"{HTTP}{line}\n") == [f"{AT}.{message}" for message in messages]


def test_the_stream_takes_no_tokens() -> None:
    (problem,) = problems("workers: [{name: iii-stream, config: {auth: jwt}}]")
    assert problem.endswith("config.auth: expected 'iam', 'ticket' or 'none', found 'jwt'")


def test_the_places_of_the_sections_are_stored_with_the_configuration() -> None:
    config = parse("workers:\n  - name: iii-http\n  - name: iii-stream\n  - name: iii-aws\n")
    back = config_from_json(config_to_json(config))
    assert (back.http.line, back.stream.line, back.aws.line) == (2, 3, 4)
