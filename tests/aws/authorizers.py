"""Who may call a route of the HTTP API, and what the API tells its Lambda of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from iii_runtime.core.config import JwtConfig
from iii_runtime.core.triggers import HttpAuth

_SIGNED = "AWS4-HMAC-SHA256 Credential="


class CallerRefusedError(Exception):
    """The API does not pass a request on.

    Attributes:
        status: Of its answer: 401 or 403.
        message: Of its answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Authorizers:
    """Checks requests as the routes demand. Signatures are taken for valid; there is nobody to forge one.

    Args:
        jwt: Whose tokens are accepted.

    Attributes:
        principals: By access key, what the API knows of the principals of the account.
    """

    def __init__(self, jwt: JwtConfig | None) -> None:
        self.principals: dict[str, Mapping[str, Any]] = {}
        self._jwt = jwt

    def authorize(self, auth: HttpAuth, headers: Mapping[str, str]) -> dict[str, Any] | None:
        """Return `requestContext.authorizer`, None on an open route.

        Raises:
            CallerRefusedError: 401 without a valid token, 403 without a signature of a known principal.
        """
        given = headers.get("authorization", "")
        if auth == "jwt":
            return {"jwt": {"claims": self._claims(given), "scopes": None}}  # no route demands any
        if auth == "iam":
            key = given.removeprefix(_SIGNED).partition("/")[0]
            if not given.startswith(_SIGNED) or key not in self.principals:
                raise CallerRefusedError(403, "Forbidden")
            return {"iam": {"accessKey": key, "cognitoIdentity": None, **self.principals[key]}}
        return None

    def _claims(self, given: str) -> dict[str, str]:
        try:
            body = given.removeprefix("Bearer ").split(".")[1]
            claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (IndexError, ValueError) as error:
            raise CallerRefusedError(401, "Unauthorized") from error
        jwt = self._jwt
        if jwt is None or claims.get("iss") != jwt.issuer or claims.get("aud") not in jwt.audience:
            raise CallerRefusedError(401, "Unauthorized")
        return {name: _text(value) for name, value in claims.items()}


def bearer(**claims: Any) -> dict[str, str]:
    """Return the header with a token."""
    parts = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({}, claims, "sig"))
    return {"Authorization": f"Bearer {'.'.join(parts)}"}


def signed(access_key: str) -> dict[str, str]:
    """Return the header of a request that was signed with the key."""
    return {"Authorization": f"{_SIGNED}{access_key}/20260301/eu-central-1/execute-api/aws4_request, Signature=0"}


def _text(value: object) -> str:
    """Return a claim as API Gateway hands it over: as text, a list in brackets."""
    if isinstance(value, list):
        return f"[{' '.join(map(_text, value))}]"
    return value if isinstance(value, str) else json.dumps(value)
