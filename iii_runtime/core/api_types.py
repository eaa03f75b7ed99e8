"""What a function bound to an http trigger may receive and return, as typed values.

Plain dicts work as well and are what travels between processes; these are the same fields by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Generic, TypeAlias, TypeVar, cast

from iii_runtime.core.frozen import frozen

BodyT = TypeVar("BodyT")

_NO_BODY = object()


@frozen(kw_only=True)
class JwtCaller:
    """Who calls a route with `auth: jwt`: what the token says, which API Gateway has checked.

    The claims are not part of its text, so that no log has them by accident.

    Attributes:
        claims: By name, as API Gateway hands them over: each is text, a number or a list in the token too.
        scopes: What the claim `scope` or `scp` grants.
    """

    claims: Mapping[str, Any] = field(repr=False)
    scopes: tuple[str, ...] = ()


@frozen(kw_only=True)
class IamCaller:
    """Who calls a route with `auth: iam`: the AWS principal whose credentials have signed the request.

    Attributes:
        arn: Of the user, or of the session of a role.
        account: Its AWS account.
        user_id: The unique id of the principal; of a role with the name of the session.
        cognito_identity: Id of the identity, if the credentials come from an identity pool of Cognito. All identities
            of a pool may have the same `arn` and `user_id`.
    """

    arn: str
    account: str
    user_id: str
    cognito_identity: str | None = None


Caller: TypeAlias = JwtCaller | IamCaller


def describe_caller(caller: Caller | None) -> dict[str, Any] | None:
    """Return the member `caller` of a request dict."""
    if isinstance(caller, JwtCaller):
        return {"type": "jwt", "claims": dict(caller.claims), "scopes": list(caller.scopes)}
    if isinstance(caller, IamCaller):
        members = {"arn": caller.arn, "account": caller.account, "user_id": caller.user_id}
        return {"type": "iam", **members, "cognito_identity": caller.cognito_identity}
    return None


def caller_of(described: object) -> Caller | None:
    """Return the caller of a request dict: the reverse of `describe_caller`. Whatever else is there is nobody."""
    match described:
        case {"type": "jwt", "claims": Mapping() as claims, "scopes": list() | tuple() as scopes}:
            return JwtCaller(claims=claims, scopes=tuple(scopes))
        case {
            "type": "iam",
            "arn": str() as arn,
            "account": str() as account,
            "user_id": str() as user_id,
            "cognito_identity": (str() | None) as identity,
        }:
            return IamCaller(arn=arn, account=account, user_id=user_id, cognito_identity=identity)
    return None


@frozen(kw_only=True)
class ApiRequest(Generic[BodyT]):
    """One http request as a handler sees it.

    `ApiRequest[dict[str, Any]]` says what the body is for readers and type checkers; nothing is checked here.

    Attributes:
        path: The registered pattern, such as `/users/:id`, not the path that was called.
        method: The method of the request, upper case.
        path_params: The decoded parameters of the pattern by name.
        query_params: One value for each name; of repeated ones the last.
        headers: By lower-case name.
        body: The JSON value for JSON types, text for `text/*` and forms, bytes for others, None when empty.
        trigger: `{"type": "http", "path": ..., "method": ...}`, as registered.
        caller: Who calls, as API Gateway has found out: a `JwtCaller` or an `IamCaller` on a route with that `auth`.
            None on a route with `auth: none`, and on this machine, where nobody looks.
    """

    path: str = ""
    method: str = "GET"
    path_params: Mapping[str, str] = field(default_factory=dict)
    query_params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: BodyT | None = None
    trigger: Mapping[str, str] = field(default_factory=dict)
    caller: Caller | None = None

    @classmethod
    def from_request(cls, request: Mapping[str, Any]) -> ApiRequest[Any]:
        """Return the request dict as a value; unknown members are ignored, missing ones take their default."""
        members = {name: request[name] for name in cls.__dataclass_fields__ if name in request}
        return cast("ApiRequest[Any]", cls(**members | {"caller": caller_of(members.get("caller"))}))


@frozen(init=False)
class ApiResponse(Generic[BodyT]):
    """What a handler answers over http.

    Attributes:
        status_code: 200 to 599, default 200. The older spelling `statusCode` works too.
        body: Any JSON value, bytes, or text when `headers` names a content type; None is JSON null. Default `{}`.
        headers: By name; a list of values repeats the header.
    """

    status_code: int
    body: BodyT | None
    headers: Mapping[str, str | list[str]]

    def __init__(
        self,
        *,
        status_code: int = 200,
        body: BodyT | None = cast("BodyT", _NO_BODY),  # noqa: B008 - an immutable default
        headers: Mapping[str, str | list[str]] | None = None,
        statusCode: int | None = None,  # noqa: N803 - the name is iii's
    ) -> None:
        object.__setattr__(self, "status_code", status_code if statusCode is None else statusCode)
        object.__setattr__(self, "body", {} if body is _NO_BODY else body)
        object.__setattr__(self, "headers", dict(headers or {}))

    @property
    def statusCode(self) -> int:  # noqa: N802 - the name is iii's
        """The status by its older name."""
        return self.status_code

    def model_dump(self, **_: object) -> dict[str, Any]:
        """Return the response dict; the JSON codec calls this where a result crosses a boundary."""
        return {"status_code": self.status_code, "body": self.body, "headers": dict(self.headers)}
