"""Where the streams of a stage can be watched, for somebody with AWS credentials."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import NoCredentialsError

from iii_runtime.adapters.aws.stage_access import StageAccess
from iii_runtime.core.errors import HostError
from iii_runtime.plan.routes import STREAM_TICKET

_SIGNATURE_LIFE_S = 60
_CREATED, _NOT_FOUND = 201, 404


class StageStreams:
    """The WebSocket API of one stage.

    Args:
        access: The stage.
        variable: The environment variable that tells the Lambda of the API where it is.
    """

    def __init__(self, access: StageAccess, variable: str) -> None:
        self._access = access
        self._variable = variable
        self._lambda = access.names.system_name("websocket")

    def address(self) -> str:
        """Return a `wss://` address that takes one connection within a minute.

        It has a ticket in it if the stage wants one, else a signature; a stage that lets everybody in ignores that.

        Raises:
            HostError: See `StageAccess.telling` and `StageAccess.invoke`.
        """
        endpoint = self._endpoint()
        ticket = self._ticket()
        address = self._signed(endpoint) if ticket is None else f"{endpoint}?{urlencode({'ticket': ticket})}"
        return f"ws{address.removeprefix('http')}"

    def _endpoint(self) -> str:
        with self._access.telling("lambda:GetFunctionConfiguration", f"function:{self._lambda}"):
            settings = self._access.managing.get_function_configuration(FunctionName=self._lambda)
        variables = settings.get("Environment", {}).get("Variables", {})
        if not variables.get(self._variable, "").startswith(("https://", "http://")):
            raise HostError(
                f"Lambda {self._lambda} does not say where its WebSocket API is: its environment has no "
                f"{self._variable}. Deploy the stage anew.",
                code="stage_failed",
            )
        return variables[self._variable]

    def _ticket(self) -> str | None:
        """Return a fresh ticket; None if the stage wants none."""
        method, path = STREAM_TICKET
        request = {"version": "2.0", "rawPath": path, "requestContext": {"http": {"method": method, "path": path}}}
        told = self._access.invoke(self._lambda, json.dumps(request).encode())
        try:
            if told["statusCode"] == _NOT_FOUND:
                return None
            body = _body(told)
            if told["statusCode"] == _CREATED:
                return str(body["ticket"])
            why = body["error"]
        except (LookupError, TypeError, ValueError) as error:
            why = f"its answer cannot be read: {error!r}"
        raise HostError(f"Lambda {self._lambda} gave no ticket for its streams: {why}.", code="stage_failed")

    def _signed(self, endpoint: str) -> str:
        with self._access.telling("execute-api:Invoke"):
            credentials = self._access.session.get_credentials()
            if credentials is None:
                raise NoCredentialsError
            request = AWSRequest("GET", endpoint)
            frozen = credentials.get_frozen_credentials()
            SigV4QueryAuth(frozen, "execute-api", self._access.region, expires=_SIGNATURE_LIFE_S).add_auth(request)
        return str(request.url)


def _body(response: Mapping[str, Any]) -> Any:
    content = base64.b64decode(response["body"]) if response.get("isBase64Encoded") else response["body"]
    return json.loads(content)
