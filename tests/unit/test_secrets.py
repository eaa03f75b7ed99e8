"""Where `secret` looks."""

from __future__ import annotations

import threading

import boto3
import pytest
from moto import mock_aws

from iii_runtime import IiiError, secret
from iii_runtime.adapters.aws.parameters import ParameterSecrets
from iii_runtime.core.secrets import secrets_from

REGION = "eu-central-1"


class Fixed:
    """Has one secret."""

    def __init__(self, value: str) -> None:
        self.value = value

    def get(self, name: str) -> str:
        return f"{name}={self.value}"


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


def test_on_a_laptop_it_is_the_environment_variable_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARD_KEY", "k-1")
    assert secret("CARD_KEY") == "k-1"
    monkeypatch.delenv("CARD_KEY")
    with pytest.raises(IiiError, match="CARD_KEY is not set") as caught:
        secret("CARD_KEY")
    assert caught.value.code == "secret_unknown"


def test_a_host_says_where_it_looks_and_a_thread_of_a_handler_finds_it_too() -> None:
    heard: list[str] = []
    with secrets_from(Fixed("outer")):
        with secrets_from(Fixed("inner")):
            thread = threading.Thread(target=lambda: heard.append(secret("a")))
            thread.start()
            thread.join()
        heard.append(secret("b"))
    assert heard == ["a=inner", "b=outer"]


def test_on_aws_it_is_read_from_its_source_once_in_five_minutes(credentials: None) -> None:
    with mock_aws():
        ssm = boto3.client("ssm", region_name=REGION)
        ssm.put_parameter(Name="/shop/card-key", Value="k-1", Type="SecureString")
        boto3.client("secretsmanager", region_name=REGION).create_secret(Name="shop/token", SecretString="t-1")
        secrets = ParameterSecrets({"CARD_KEY": "ssm:/shop/card-key", "TOKEN": "secretsmanager:shop/token"}, REGION)
        with secrets_from(secrets):
            assert (secret("CARD_KEY"), secret("TOKEN")) == ("k-1", "t-1")
            ssm.put_parameter(Name="/shop/card-key", Value="k-2", Type="SecureString", Overwrite=True)
            assert secret("CARD_KEY") == "k-1"
        fresh = ParameterSecrets({"CARD_KEY": "ssm:/shop/card-key"}, REGION)
        assert fresh.get("CARD_KEY") == "k-2"


@pytest.mark.parametrize("source", ["ssm:/shop/gone", "secretsmanager:gone"])
def test_a_source_that_has_nothing_is_told_with_its_name(credentials: None, source: str) -> None:
    with mock_aws(), pytest.raises(IiiError, match=rf"secret 'K' cannot be read from {source}.*(not|can't)") as caught:
        ParameterSecrets({"K": source}, REGION).get("K")
    assert caught.value.code == "secret_unavailable"


def test_a_secret_that_the_function_does_not_declare_is_refused_without_asking_aws() -> None:
    with pytest.raises(IiiError, match="declares none of this name") as caught:
        ParameterSecrets({}, REGION).get("OTHER")
    assert caught.value.code == "secret_unknown"


def test_a_binary_secret_is_refused(credentials: None) -> None:
    with mock_aws():
        boto3.client("secretsmanager", region_name=REGION).create_secret(Name="raw", SecretBinary=b"\xff")
        with pytest.raises(IiiError, match="is not a text"):
            ParameterSecrets({"K": "secretsmanager:raw"}, REGION).get("K")
