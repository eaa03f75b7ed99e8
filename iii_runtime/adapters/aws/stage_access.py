"""How somebody with AWS credentials reaches one stage of an app: its names, clients, and errors that say what to do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import ConnectionError as NotConnectedError

from iii_runtime.adapters.aws.clients import Clients
from iii_runtime.core.errors import HostError
from iii_runtime.plan.names import Deployment

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient

_QUICK = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard"})
_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
_INVALID = frozenset(
    {"UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException", "SignatureDoesNotMatch"}
)
_THROTTLED = frozenset(
    {"TooManyRequestsException", "ThrottlingException", "Throttling", "EC2ThrottledException", "RequestLimitExceeded"}
)


class StageAccess:
    """One stage of an app, in one region, with the usual AWS credentials.

    Attributes:
        app: The app.
        stage: The stage.
        region: The region, such as `eu-west-1`.
        session: Where its clients and credentials come from.
        clients: Clients for its services; one that invokes waits as long as any Lambda runs, and repeats nothing.
    """

    def __init__(self, app: str, stage: str, *, region: str | None = None, profile: str | None = None) -> None:
        """Look up region and credentials as every AWS tool does; nothing is called yet.

        Args:
            app: The app.
            stage: The stage.
            region: The region; by default what boto3 finds, AWS_DEFAULT_REGION or that of the profile.
            profile: A profile of the AWS configuration; by default that of the environment.

        Raises:
            HostError: `aws_profile_missing`, `aws_region_missing`; `stage_failed`: the configuration of AWS is broken.
        """
        self.app = app
        self.stage = stage
        try:
            self.session = Session(region_name=region, profile_name=profile)
            found = self.session.region_name
        except ProfileNotFound as error:
            raise HostError(
                f"{error}. `aws configure list-profiles` lists the profiles; choose one with --profile.",
                code="aws_profile_missing",
            ) from error
        except BotoCoreError as error:
            raise self._unsent(error) from error
        if found is None:
            raise HostError(
                "no AWS region is chosen. Give --region, set AWS_REGION, or choose a profile that has one.",
                code="aws_region_missing",
            )
        self.region = found
        self.clients = Clients(found, session=self.session)

    @property
    def names(self) -> Deployment:
        """The names that have no account in them: those of Lambdas, of queues, of the table."""
        return self._names("")

    @cached_property
    def deployment(self) -> Deployment:
        """All names. Asks AWS once whose credentials these are, which every user may.

        Raises:
            HostError: See `telling`.
        """
        with self.telling("sts:GetCallerIdentity"):
            identity = self.session.client("sts", config=_QUICK).get_caller_identity()
        return self._names(identity["Account"], partition=identity["Arn"].split(":")[1])

    @cached_property
    def managing(self) -> LambdaClient:
        """A client for settings of Lambdas; its calls are quick, and repeated."""
        return self.session.client("lambda", config=_QUICK)

    def invoke(self, name: str, event: bytes) -> Any:
        """Invoke a Lambda of the stage once, wait for its end, and return what it answers.

        Args:
            name: Its name.
            event: JSON.

        Raises:
            HostError: See `telling`; `stage_failed` also if it broke down, or answers what is no JSON.
        """
        with self.telling("lambda:InvokeFunction", f"function:{name}"):
            response = self.clients.lambda_.invoke(FunctionName=name, Payload=event)
            content = response["Payload"].read()
        try:
            told = json.loads(content)
        except ValueError as error:
            raise answer_unreadable(name, error) from error
        if not response.get("FunctionError"):
            return told
        known = told if isinstance(told, dict) else {}
        why = ": ".join(str(known[member]) for member in ("errorType", "errorMessage") if member in known)
        raise HostError(
            f"Lambda {name} broke down: {why}. The call may have been carried out; look at the "
            f"CloudWatch logs of Lambda {name} before you repeat it.",
            code="stage_failed",
        )

    @contextmanager
    def telling(self, action: str, resource: str = "*") -> Iterator[None]:
        """Turn what AWS refuses into errors that say what to do.

        Args:
            action: The IAM action of the calls within.
            resource: What they are about, as a policy names it.

        Raises:
            HostError: `aws_credentials_missing`, `aws_credentials_expired`, `aws_credentials_invalid`,
                `aws_access_denied`, `aws_throttled`, `stage_not_deployed`, `stage_unreachable`, or `stage_failed` for
                anything else.
        """
        try:
            yield
        except ClientError as error:
            raise self._refused(error, action, resource) from error
        except BotoCoreError as error:
            raise self._unsent(error) from error

    def _names(self, account: str, *, partition: str = "aws") -> Deployment:
        return Deployment(app=self.app, stage=self.stage, region=self.region, account=account, partition=partition)

    def _refused(self, error: ClientError, action: str, resource: str) -> HostError:
        code = error.response["Error"].get("Code", "")
        said = _sentence(error.response["Error"].get("Message") or code)
        if code in _DENIED:
            return HostError(
                f"AWS does not allow it. {said} The credentials need {action} on {resource}.", code="aws_access_denied"
            )
        if code in _EXPIRED:
            return _expired(said)
        if code in _INVALID:
            return HostError(
                f"AWS does not accept the credentials. {said} Look at AWS_ACCESS_KEY_ID and its companions, or choose "
                "other ones with --profile.",
                code="aws_credentials_invalid",
            )
        if code in _THROTTLED:
            return HostError(
                f"AWS is at a limit and has done nothing. {said} Try again in a while. Where functions use up the "
                f"concurrency, `iii-runtime queues pause NAME --stage {self.stage}` stops a queue all the same.",
                code="aws_throttled",
            )
        if code == "ResourceNotFoundException":
            return HostError(
                f"stage '{self.stage}' of app '{self.app}' is not deployed in {self.region}. {said} Deploy it with "
                f"`cdk deploy -c stage={self.stage}`, or choose another --app, --region or --profile.",
                code="stage_not_deployed",
            )
        return HostError(f"{action} failed with {code or 'an unknown error'}. {said}", code="stage_failed")

    def _unsent(self, error: BotoCoreError) -> HostError:
        said = _sentence(str(error))
        match error:
            case SSOError() | TokenRetrievalError():
                return _expired(said)
            case NoCredentialsError() | PartialCredentialsError() | CredentialRetrievalError():
                return HostError(
                    f"there are no AWS credentials. {said} Log in, such as with `aws sso login`, set AWS_PROFILE or "
                    "AWS_ACCESS_KEY_ID and its companions, or give --profile.",
                    code="aws_credentials_missing",
                )
            case NotConnectedError():
                return HostError(
                    f"AWS cannot be reached in {self.region}. {said} Nothing was tried. Look at the network and at the "
                    "name of the region.",
                    code="stage_unreachable",
                )
            case HTTPClientError() | IncompleteReadError():
                return HostError(
                    f"AWS gave no answer. {said} The call may have been carried out; look at the CloudWatch logs of "
                    f"Lambda {self.names.system_name('control')} before you repeat it.",
                    code="stage_unreachable",
                )
            case _:
                return HostError(f"the stage cannot be used. {said}", code="stage_failed")


def answer_unreadable(name: str, error: Exception) -> HostError:
    """Return the error of a Lambda that does not answer as this version of the runtime expects it."""
    return HostError(
        f"what Lambda {name} answers cannot be read: {error}. Use the version of iii-runtime that the stage was "
        "deployed with, or deploy it anew.",
        code="stage_failed",
    )


def _expired(said: str) -> HostError:
    return HostError(
        f"the AWS credentials have expired. {said} Get new ones, such as with `aws sso login`.",
        code="aws_credentials_expired",
    )


def _sentence(text: str) -> str:
    line = " ".join(text.split())
    return line if line.endswith((".", "!", "?")) else f"{line}."
