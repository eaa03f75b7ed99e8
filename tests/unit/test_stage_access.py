"""What AWS refuses becomes an error that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionClosedError,
    CredentialRetrievalError,
    DataNotFoundError,
    EndpointConnectionError,
    NoCredentialsError,
    PartialCredentialsError,
    ReadTimeoutError,
    SSOTokenLoadError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from moto import mock_aws

from iii_runtime.adapters.aws.stage_access import StageAccess
from iii_runtime.core.errors import HostError
from tests.host.stage import ACCOUNT, REGION, no_credentials, own_credentials


@pytest.fixture
def access(monkeypatch: pytest.MonkeyPatch) -> StageAccess:
    own_credentials(monkeypatch)
    return StageAccess("shop", "prod")


def told(access: StageAccess, error: Exception) -> HostError:
    with pytest.raises(HostError) as raised, access.telling("lambda:InvokeFunction", "function:shop-prod-x-control"):
        raise error
    assert raised.value.__cause__ is error
    return raised.value


@pytest.mark.parametrize(
    ("aws_code", "code", "remedy"),
    [
        ("ResourceNotFoundException", "stage_not_deployed", "`cdk deploy -c stage=prod`"),
        ("AccessDeniedException", "aws_access_denied", "lambda:InvokeFunction on function:shop-prod-x-control"),
        ("AccessDenied", "aws_access_denied", "lambda:InvokeFunction"),
        ("ExpiredTokenException", "aws_credentials_expired", "`aws sso login`"),
        ("ExpiredToken", "aws_credentials_expired", "`aws sso login`"),
        ("UnrecognizedClientException", "aws_credentials_invalid", "--profile"),
        ("SignatureDoesNotMatch", "aws_credentials_invalid", "--profile"),
        ("TooManyRequestsException", "aws_throttled", "`iii-runtime queues pause NAME --stage prod`"),
        ("ThrottlingException", "aws_throttled", "done nothing"),
        ("ServiceException", "stage_failed", "lambda:InvokeFunction failed with ServiceException"),
    ],
)
def test_what_a_service_refuses_has_a_code_its_words_and_a_remedy(
    access: StageAccess, aws_code: str, code: str, remedy: str
) -> None:
    error = told(access, ClientError({"Error": {"Code": aws_code, "Message": "What AWS says"}}, "Invoke"))
    assert error.code == code
    assert "What AWS says." in error.message
    assert remedy in error.message


@pytest.mark.parametrize(
    ("given", "code", "remedy"),
    [
        (NoCredentialsError(), "aws_credentials_missing", "AWS_PROFILE"),
        (PartialCredentialsError(provider="env", cred_var="x"), "aws_credentials_missing", "--profile"),
        (CredentialRetrievalError(provider="p", error_msg="no"), "aws_credentials_missing", "--profile"),
        (SSOTokenLoadError(error_msg="no"), "aws_credentials_expired", "`aws sso login`"),
        (UnauthorizedSSOTokenError(), "aws_credentials_expired", "`aws sso login`"),
        (TokenRetrievalError(provider="p", error_msg="no"), "aws_credentials_expired", "`aws sso login`"),
        (EndpointConnectionError(endpoint_url="https://x"), "stage_unreachable", "Nothing was tried"),
        (
            ReadTimeoutError(endpoint_url="https://x"),
            "stage_unreachable",
            "CloudWatch logs of Lambda shop-prod-x-control",
        ),
        (ConnectionClosedError(endpoint_url="https://x"), "stage_unreachable", "may have been carried out"),
        (DataNotFoundError(data_path="x"), "stage_failed", "Unable to load data"),
    ],
)
def test_what_the_library_cannot_do_has_a_code_and_a_remedy(
    access: StageAccess, given: BotoCoreError, code: str, remedy: str
) -> None:
    error = told(access, given)
    assert error.code == code
    assert remedy in error.message


def test_a_refusal_without_a_code_is_still_told(access: StageAccess) -> None:
    assert told(access, ClientError({"Error": {}}, "Invoke")).code == "stage_failed"


def test_other_errors_pass(access: StageAccess) -> None:
    with pytest.raises(KeyError), access.telling("lambda:InvokeFunction"):
        raise KeyError("a defect")


def test_without_a_region_it_says_how_to_choose_one(monkeypatch: pytest.MonkeyPatch) -> None:
    no_credentials(monkeypatch)
    with pytest.raises(HostError, match="--region") as raised:
        StageAccess("shop", "prod")
    assert raised.value.code == "aws_region_missing"
    assert StageAccess("shop", "prod", region=REGION).region == REGION


@pytest.mark.parametrize("given", ["option", "environment"])
def test_a_profile_that_nobody_knows_is_told(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    no_credentials(monkeypatch)
    if given == "environment":
        monkeypatch.setenv("AWS_PROFILE", "nobodys")
    with pytest.raises(HostError, match="nobodys") as raised:
        StageAccess("shop", "prod", region=None, profile="nobodys" if given == "option" else None)
    assert raised.value.code == "aws_profile_missing"


def test_a_profile_brings_its_region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_credentials(monkeypatch)
    (tmp_path / "config").write_text("[profile work]\nregion = eu-central-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert StageAccess("shop", "prod", profile="work").region == "eu-central-1"


def test_a_configuration_of_aws_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_credentials(monkeypatch)
    (tmp_path / "config").write_text("no section\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(HostError, match="config") as raised:
        StageAccess("shop", "prod")
    assert raised.value.code == "stage_failed"


def test_the_name_of_the_control_lambda_needs_no_account(access: StageAccess) -> None:
    assert access.names.system_name("control") == "shop-prod-x-control"


def test_the_account_is_that_of_the_credentials(access: StageAccess) -> None:
    with mock_aws():
        assert access.deployment.account == ACCOUNT
        assert access.deployment.queue_pattern == f"arn:aws:sqs:{REGION}:{ACCOUNT}:shop-prod-q-*"
