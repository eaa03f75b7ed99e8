"""Durable runs over http: the routes under `/_iii/runs`, which are the functions `iii::runs::*` in http's words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

from iii_runtime.core.errors import InputInvalidError, InvocationError
from iii_runtime.core.http import (
    BadRequestError,
    HttpReply,
    Matched,
    MethodNotAllowed,
    Preflight,
    RouteTable,
    build_request,
    error_reply,
    method_not_allowed,
    not_found,
    parse_route,
    render_response,
    validation_failed,
)
from iii_runtime.core.http.prefer import applied_wait, preferred_wait
from iii_runtime.core.payload import Json
from iii_runtime.core.trigger_request import TriggerRequest

RUN_ROUTES = "/_iii/runs"
"""Where the routes begin."""

_MARGIN = timedelta(seconds=10)
_STATUSES: Mapping[str, int] = {
    "run_request_invalid": 400,
    "query_failed": 400,
    "name_invalid": 400,
    "run_not_found": 404,
    "function_not_found": 404,
    "workflow_not_found": 404,
    "run_already_started": 409,
    "run_closed": 409,
    "workflow_diverged": 409,
    "limit_exceeded": 413,
    "inbox_full": 429,
    "start_contended": 503,
}
"""The status of an error, by its code; 500 of any other."""

Request: TypeAlias = dict[str, Any]
Answer: TypeAlias = dict[str, Any]
Carry: TypeAlias = Callable[[TriggerRequest], Awaitable[Json]]
Operation: TypeAlias = Callable[["RunRoutes", Request], Awaitable[Answer]]


def location_of(workflow_id: str, run_id: str) -> str:
    """Return where a run is described."""
    return f"{RUN_ROUTES}/{quote(workflow_id, safe='')}?{urlencode({'run_id': run_id})}"


class RunRoutes:
    """Answers requests to these routes.

    Args:
        carry: Carries out a trigger request in the engine.
    """

    def __init__(self, carry: Carry) -> None:
        self._carry = carry
        self._table = RouteTable([parse_route(method, path, operation) for method, path, operation in _ROUTES])

    @staticmethod
    def has(path: str) -> bool:
        """Return whether a path is one of these, or would be if there were such a route."""
        return path == RUN_ROUTES or path.startswith(f"{RUN_ROUTES}/")

    async def answer(
        self, method: str, path: str, query: str, headers: tuple[tuple[str, str], ...], body: bytes, error_id: str
    ) -> HttpReply:
        """Answer one request.

        Raises:
            HttpError: The request cannot be read.
        """
        match = self._table.match(method, path)
        if isinstance(match, Preflight):
            return HttpReply(status=204, headers=(("Allow", ", ".join(match.allowed)),))
        if isinstance(match, MethodNotAllowed):
            return method_not_allowed(method, path, match.allowed, error_id)
        if not isinstance(match, Matched):
            return not_found(method, path, error_id)
        request = build_request(
            match.route, method=method, path_params=match.path_params, query=query, headers=headers, body=body
        )
        try:
            return render_response(await match.route.target(self, request))
        except InvocationError as error:
            if isinstance(error.__cause__, InputInvalidError):
                return validation_failed(error.message, error.__cause__.details, error_id)
            return error_reply(_STATUSES.get(error.code, 500), error.code, error.message, error_id)

    async def start(self, request: Request) -> Answer:
        """`POST`: a start as of `iii::runs::start`; `Idempotency-Key` is its request id if it has none."""
        asked = {**_object(request)}
        key = request["headers"].get("idempotency-key")
        if key is not None:
            asked.setdefault("request_id", key)
        started: Any = await self._ask("start", asked)
        location = {"Location": location_of(started["workflow_id"], started["run_id"])}
        wait = preferred_wait(request["headers"].get("prefer"))
        if wait is None:
            return {"status_code": 202, "body": started, "headers": location}
        ids = {"workflow_id": started["workflow_id"], "run_id": started["run_id"]}
        return await self._ended(ids, wait, location)

    async def list_runs(self, request: Request) -> Answer:
        """`GET`: runs, by the query's `workflow`, `status`, `workflow_id`, `before_ms` and `limit`."""
        asked: dict[str, Json] = {**request["query_params"]}
        for name in ("before_ms", "limit"):
            if name in asked:
                asked[name] = _number(str(asked[name]), name)
        return _ok({"runs": await self._ask("list", asked)})

    async def describe(self, request: Request) -> Answer:
        """`GET` of a run: where it stands."""
        return _ok(await self._ask("describe", _which(request)))

    async def history(self, request: Request) -> Answer:
        """`GET`: all that has happened to the run."""
        return _ok({"events": await self._ask("history", _which(request))})

    async def result(self, request: Request) -> Answer:
        """`GET`: how the run has ended; 202 while it has not. `Prefer: wait=N` waits for that."""
        wait = preferred_wait(request["headers"].get("prefer"))
        return await self._ended(_which(request), wait or timedelta(0), {})

    async def signal(self, request: Request) -> Answer:
        """`POST`: a signal whose payload is the body; `Idempotency-Key` is its id."""
        sent = {"name": request["path_params"]["name"], "payload": _json_body(request)}
        key = request["headers"].get("idempotency-key")
        await self._ask("signal", {**_which(request), **sent, **({} if key is None else {"signal_id": key})})
        return _accepted()

    async def query(self, request: Request) -> Answer:
        """`POST` with the arguments as an array, or `GET` without any: the workflow's answer."""
        arguments = _json_body(request)
        asked = {**_which(request), "name": request["path_params"]["name"]}
        answer = await self._ask("query", asked if arguments is None else {**asked, "arguments": arguments})
        return _ok({"answer": answer})

    async def cancel(self, request: Request) -> Answer:
        """`POST`, `{reason?}`: the run is asked to end itself."""
        await self._ask("cancel", {**_which(request), **_reason(request)})
        return _accepted()

    async def terminate(self, request: Request) -> Answer:
        """`POST`, `{reason?}`: the run ends at once."""
        await self._ask("terminate", {**_which(request), **_reason(request)})
        return _accepted()

    async def resume(self, request: Request) -> Answer:
        """`POST`: a parked run goes on."""
        await self._ask("resume", {"workflow_id": request["path_params"]["workflow_id"]})
        return _accepted()

    async def _ended(self, ids: Mapping[str, Json], wait: timedelta, headers: Mapping[str, str]) -> Answer:
        wait_ms = wait // timedelta(milliseconds=1)
        told: Any = await self._ask("result", {**ids, "wait_ms": wait_ms}, timeout=wait + _MARGIN)
        applied = dict([applied_wait(wait)]) if wait else {}
        status = 202 if told["status"] == "running" else 200
        return {"status_code": status, "body": told, "headers": {**headers, **applied}}

    async def _ask(self, operation: str, payload: Mapping[str, Json], *, timeout: timedelta | None = None) -> Json:
        timeout_ms = None if timeout is None else timeout // timedelta(milliseconds=1)
        return await self._carry(TriggerRequest(f"iii::runs::{operation}", {**payload}, timeout_ms=timeout_ms))


_ONE = f"{RUN_ROUTES}/:workflow_id"
_ROUTES: tuple[tuple[str, str, Operation], ...] = (
    ("POST", RUN_ROUTES, RunRoutes.start),
    ("GET", RUN_ROUTES, RunRoutes.list_runs),
    ("GET", _ONE, RunRoutes.describe),
    ("GET", f"{_ONE}/history", RunRoutes.history),
    ("GET", f"{_ONE}/result", RunRoutes.result),
    ("POST", f"{_ONE}/signals/:name", RunRoutes.signal),
    ("GET", f"{_ONE}/queries/:name", RunRoutes.query),
    ("POST", f"{_ONE}/queries/:name", RunRoutes.query),
    ("POST", f"{_ONE}/cancel", RunRoutes.cancel),
    ("POST", f"{_ONE}/terminate", RunRoutes.terminate),
    ("POST", f"{_ONE}/resume", RunRoutes.resume),
)


def _which(request: Request) -> dict[str, Json]:
    workflow_id, run_id = request["path_params"]["workflow_id"], request["query_params"].get("run_id")
    return {"workflow_id": workflow_id} | ({} if run_id is None else {"run_id": run_id})


def _object(request: Request) -> Mapping[str, Json]:
    body = _json_body(request)
    if not isinstance(body, Mapping):
        raise BadRequestError("the body must be a JSON object, sent with `Content-Type: application/json`.")
    return body


def _json_body(request: Request) -> Any:
    """Return the body; JSON needs its content type, which keeps pages of other origins from sending it unasked."""
    body = request["body"]
    if isinstance(body, str | bytes) and "json" not in request["headers"].get("content-type", ""):
        raise BadRequestError("the body must be JSON, sent with `Content-Type: application/json`.")
    return body


def _reason(request: Request) -> dict[str, Json]:
    body = _json_body(request)
    return {"reason": body["reason"]} if isinstance(body, Mapping) and "reason" in body else {}


def _number(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16):
        raise BadRequestError(f"'{name}' must be a number, found {text!r:.40}.")
    return int(text)


def _ok(body: Json) -> Answer:
    return {"status_code": 200, "body": body}


def _accepted() -> Answer:
    return {"status_code": 202, "body": {"accepted": True}}
