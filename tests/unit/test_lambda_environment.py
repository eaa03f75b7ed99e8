"""What a Lambda reads from its environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from iii_runtime.core.errors import HostError
from iii_runtime.hosts.aws_lambda.environment import read_environment

NEEDED = {"III_APP": "shop", "III_STAGE": "dev", "III_ACCOUNT": "123456789012", "AWS_REGION": "eu-central-1"}


def test_the_names_follow_from_app_stage_region_and_account() -> None:
    environment = read_environment(NEEDED)
    assert environment.deployment.table_name == "shop-dev"
    assert (
        environment.deployment.system_arn("tick") == "arn:aws:lambda:eu-central-1:123456789012:function:shop-dev-x-tick"
    )
    assert (environment.function_id, environment.log_level, environment.is_tracing) == (None, "INFO", False)
    assert environment.secrets == {}


def test_the_bundle_is_the_task_root_or_the_folder_beside_the_package(tmp_path: Path) -> None:
    assert read_environment({**NEEDED, "LAMBDA_TASK_ROOT": str(tmp_path)}).root == tmp_path
    assert (read_environment(NEEDED).root / "iii_runtime" / "__init__.py").is_file()


def test_function_level_secrets_and_tracing_are_read() -> None:
    given = {"III_FUNCTION": "a::b", "III_LOG_LEVEL": "debug", "III_SECRETS": '{"K": "ssm:/k"}', "III_TRACING": "true"}
    environment = read_environment({**NEEDED, **given})
    assert environment.function_id == "a::b"
    assert environment.log_level == "DEBUG"
    assert environment.secrets == {"K": "ssm:/k"}
    assert environment.is_tracing


@pytest.mark.parametrize(("region", "partition"), [("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")])
def test_the_partition_is_that_of_the_region(region: str, partition: str) -> None:
    assert read_environment({**NEEDED, "AWS_REGION": region}).deployment.partition == partition


@pytest.mark.parametrize("name", list(NEEDED))
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(HostError, match=name) as caught:
        read_environment({**NEEDED, name: ""})
    assert caught.value.code == "environment_invalid"


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(HostError, match="III_LOG_LEVEL is no level: 'loud'"):
        read_environment({**NEEDED, "III_LOG_LEVEL": "loud"})


@pytest.mark.parametrize("text", ["{", "[]", '{"K": 1}'])
def test_secrets_that_are_no_object_of_texts_are_refused(text: str) -> None:
    with pytest.raises(HostError, match="III_SECRETS"):
        read_environment({**NEEDED, "III_SECRETS": text})
