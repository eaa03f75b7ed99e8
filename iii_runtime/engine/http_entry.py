"""One http request, from its bytes to the bytes of the answer. Hosts own the sockets; everything else is here."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from iii_runtime.core.api_types import Caller
from iii_runtime.core.call import Call
from iii_runtime.core.errors import IiiError, InputInvalidError, InvocationError, StoreError
from iii_runtime.core.http import (
    RESPONSE_MEMBERS,
    UNKEYED_METHODS,
    HttpError,
    HttpReply,
    Matched,
    MethodNotAllowed,
    NotFound,
    Preflight,
    ResultInvalidError,
    Route,
    RouteConflictError,
    RouteTable,
    build_request,
    condition_not_met,
    cors_headers,
    error_reply,
    http_error_reply,
    join_headers,
    method_not_allowed,
    not_found,
    parse_route,
    render_response,
    timed_out,
    unavailable,
    validation_failed,
)
from iii_runtime.core.message import MAX_ERROR_BYTES, bounded_error
from iii_runtime.core.payload import LARGE_BYTES
from iii_runtime.core.registry import Catalog
from iii_runtime.core.trace import is_traceparent, usable_baggage
from iii_runtime.core.triggers import Http
from iii_runtime.engine.conditions import condition_holds
from iii_runtime.engine.http_idempotency import IdempotentAnswers, key_scope
from iii_runtime.engine.runtime import Runtime

_log = logging.getLogger("iii_runtime.http")
_KEY_HEADER = "idempotency-key"
OWN_ROUTES = "/_iii/"
"""Where the paths of the runtime's own routes begin; on AWS some have a Lambda of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """A request as it arrived.

    Attributes:
        method: Upper case.
        path: Percent-encoded, without the query.
        query: Raw query string, without `?`.
        headers: Pairs in order.
        body: Raw bytes, within the host's size limit.
        caller: Who sent it, if whoever authorised the request says so.
    """

    method: str
    path: str
    query: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    caller: Caller | None = None

    @property
    def named(self) -> dict[str, str]:
        """The headers by lower-case name, repeated ones joined."""
        return join_headers(self.headers)


@dataclass(frozen=True, slots=True)
class _Target:
    function_id: str
    condition: str | None


class HttpEntry:
    """Answers http requests with the registered functions.

    Args:
        runtime: The engine.
        holder: Identity of this host's life: reservations of idempotency keys by an earlier life are taken over.
        may_use_runs: Whether a request may come to the routes of durable runs; None if there are none.
    """

    def __init__(
        self, runtime: Runtime, holder: str, *, may_use_runs: Callable[[HttpCall], bool] | None = None
    ) -> None:
        self._runtime = runtime
        self._may_use_runs = may_use_runs
        self._table: tuple[Catalog, RouteTable[_Target]] | None = None
        self._active = 0
        self._idempotent = IdempotentAnswers(runtime, holder)

    async def handle(self, call: HttpCall) -> HttpReply:
        """Answer one request. Never raises: whatever goes wrong is an answer with a typed error."""
        config = self._runtime.app.config.http
        error_id = self._runtime.stores.ids.new_id()
        if self._active >= config.concurrency_request_limit:
            return self.with_cors(call, unavailable("the host is at its limit of concurrent requests", 1, error_id))
        self._active += 1
        started = self._runtime.stores.clock.now_ms()
        try:
            reply = await _caught(self._answer(call, error_id), error_id)
        finally:
            self._active -= 1
        elapsed = self._runtime.stores.clock.now_ms() - started
        fields = {"method": call.method, "path": call.path, "status": reply.status, "elapsed_ms": elapsed}
        _log.info("request", extra={"iii": fields if reply.status < 400 else fields | {"error_id": error_id}})
        return self.with_cors(call, reply)

    async def _answer(self, call: HttpCall, error_id: str) -> HttpReply:
        if self._may_use_runs is not None and call.path.startswith(OWN_ROUTES):
            return await self._answer_of_runs(call, self._may_use_runs, error_id)
        match = self._routes().match(call.method, call.path)
        if isinstance(match, NotFound):
            return not_found(call.method, call.path, error_id)
        if isinstance(match, Preflight):
            return HttpReply(status=204, headers=(("Allow", ", ".join(match.allowed)),))
        if isinstance(match, MethodNotAllowed):
            return method_not_allowed(call.method, call.path, match.allowed, error_id)
        request = await _read(call, match)
        if _KEY_HEADER in request["headers"] and call.method not in UNKEYED_METHODS:
            return await self._once(call, match, request, error_id)
        return await self._run(match.route.target, request, error_id)

    async def _answer_of_runs(
        self, call: HttpCall, may_use_runs: Callable[[HttpCall], bool], error_id: str
    ) -> HttpReply:
        # Loaded here: most functions behind http routes have nothing to do with runs.
        from iii_runtime.engine.run_routes import RunRoutes  # noqa: PLC0415

        if not RunRoutes.has(call.path) or self._runtime.runs is None:
            return not_found(call.method, call.path, error_id)
        if not may_use_runs(call):
            return error_reply(403, "FORBIDDEN", "runs may not be reached from there", error_id)
        routes = RunRoutes(self._runtime.trigger)
        return await routes.answer(call.method, call.path, call.query, call.headers, call.body, error_id)

    async def _once(self, call: HttpCall, match: Matched[_Target], request: dict[str, Any], error_id: str) -> HttpReply:
        def run() -> Awaitable[HttpReply]:
            # Whatever went wrong, it is the answer under this key: the function may have run.
            return _caught(self._run(match.route.target, request, error_id), error_id)

        key = request["headers"][_KEY_HEADER]
        scope = key_scope(f"{match.route.method} {match.route.pattern}", call.caller)
        return await self._idempotent.answer(key, scope, _fingerprint(call), run, error_id)

    async def _run(self, target: _Target, request: dict[str, Any], error_id: str) -> HttpReply:
        headers = request["headers"]
        traceparent = headers.get("traceparent")
        call = Call(
            function_id=target.function_id,
            identity=error_id,
            payload=request,
            source="http",
            timeout=self._limit(target.function_id),
            traceparent=traceparent if is_traceparent(traceparent) else None,
            baggage=usable_baggage(headers.get("baggage")),
        )
        try:
            if not await condition_holds(self._runtime.invoker, target.condition, call):
                return condition_not_met(error_id)
            result = await self._runtime.invoker.invoke_raw(call)
            if self._may_use_runs is not None and self._is_of_workflow(target) and _is_accepted(result):
                result = _with_location(result)
            reply = render_response(result)
            if isinstance(result, Mapping) and result and not result.keys() & RESPONSE_MEMBERS:
                message = "result not sent: an http function answers with `body`, `status_code` or `headers`"
                _log.warning(
                    message, extra={"iii": {"function_id": target.function_id, "members": sorted(map(str, result))}}
                )
            return reply
        except InvocationError as error:
            return self._failed(error, call, error_id)
        except StoreError as error:
            return _internal_error(error, error.code, error_id)
        except ResultInvalidError as error:
            fields = {"function_id": target.function_id, "error": error.message, "error_id": error_id}
            _log.error("response invalid", exc_info=error.__cause__, extra={"iii": fields})
            return http_error_reply(error, error_id)

    def _failed(self, error: InvocationError, call: Call, error_id: str) -> HttpReply:
        own = error.function_id == call.function_id
        if own and isinstance(error.__cause__, InputInvalidError):
            return validation_failed(_told(error.message), error.__cause__.details, error_id)
        if own and error.code == "TIMEOUT":
            fields = {"function_id": call.function_id, "error": error.message, "error_id": error_id}
            _log.error("function timed out", extra={"iii": fields})
            limit = call.timeout or timedelta(0)
            return timed_out(round(limit.total_seconds() * 1000), error_id)
        _log.error(
            "function failed",
            extra={
                "iii": {
                    "function_id": error.function_id,
                    "error": str(error),
                    "error_id": error_id,
                    "stack": error.stacktrace,
                }
            },
        )
        return error_reply(500, error.code, _told(error.message), error_id)

    def _is_of_workflow(self, target: _Target) -> bool:
        function = self._runtime.app.catalog.functions.get(target.function_id)
        return function is not None and function.workflow is not None

    def _limit(self, function_id: str) -> timedelta:
        default = timedelta(milliseconds=self._runtime.app.config.http.default_timeout_ms)
        function = self._runtime.app.catalog.functions.get(function_id)
        return default if function is None else min(default, self._runtime.app.timeout_of(function))

    def _routes(self) -> RouteTable[_Target]:
        catalog = self._runtime.app.catalog
        if self._table is None or self._table[0] is not catalog:
            routes: list[Route[_Target]] = []
            for spec in catalog.triggers:
                if isinstance(spec.kind, Http):
                    target = _Target(spec.function_id, spec.kind.condition)
                    routes.append(parse_route(spec.kind.method, spec.kind.path, target))
            self._table = (catalog, _table_of(routes))
        return self._table[1]

    def guarded_routes(self) -> tuple[str, ...]:
        """Return the routes that not everybody may call, such as `GET /orders`, sorted. Nothing here guards them."""
        default = self._runtime.app.config.http.auth
        kinds = [spec.kind for spec in self._runtime.app.catalog.triggers if isinstance(spec.kind, Http)]
        guarded = [kind for kind in kinds if (kind.auth or default or "none") != "none"]
        return tuple(sorted(f"{kind.method.upper()} {kind.path}" for kind in guarded))

    def with_cors(self, call: HttpCall, reply: HttpReply) -> HttpReply:
        """Return `reply` with the headers that let a browser's page read it. For answers a host gives by itself."""
        cors = self._runtime.app.config.http.cors
        if cors is None:
            return reply
        named = call.named
        preflight = call.method == "OPTIONS" and "access-control-request-method" in named
        granted = cors_headers(
            cors,
            origin=named.get("origin"),
            method=named["access-control-request-method"] if preflight else call.method,
            is_preflight=preflight,
            requested_headers=named.get("access-control-request-headers"),
        )
        return replace(reply, headers=(*reply.headers, *granted))


def _is_accepted(result: object) -> bool:
    return isinstance(result, dict) and result.get("status_code") == 202


def _with_location(result: dict[str, Any]) -> dict[str, Any]:
    """Return the answer about a run that goes on, with the place where it is described."""
    from iii_runtime.engine.run_routes import location_of  # noqa: PLC0415 - see above

    ids = result["body"]
    location = location_of(ids["workflow_id"], ids["run_id"])
    return {**result, "headers": {**result.get("headers", {}), "Location": location}}


async def _read(call: HttpCall, match: Matched[_Target]) -> dict[str, Any]:
    build = partial(
        build_request,
        match.route,
        method=call.method,
        path_params=match.path_params,
        query=call.query,
        headers=call.headers,
        body=call.body,
        caller=call.caller,
    )
    # Decoding the largest body takes seconds, in which everybody else must be served.
    return await asyncio.to_thread(build) if len(call.body) > LARGE_BYTES else build()


def _table_of(routes: list[Route[_Target]]) -> RouteTable[_Target]:
    """Return the table; a conflict that was registered at run time leaves the first route in place."""
    accepted: list[Route[_Target]] = []
    for route in routes:
        try:
            RouteTable([*accepted, route])
        except RouteConflictError as error:
            _log.error("route ignored", extra={"iii": {"error": error.message}})
        else:
            accepted.append(route)
    return RouteTable(accepted)


async def _caught(answer: Awaitable[HttpReply], error_id: str) -> HttpReply:
    """Return the answer, or the one that tells of the error in its place."""
    try:
        return await answer
    except HttpError as error:
        return http_error_reply(error, error_id)
    except IiiError as error:
        return _internal_error(error, error.code, error_id)
    except Exception as error:  # noqa: BLE001 - one faulty request must not end the host
        return _internal_error(error, "INTERNAL_ERROR", error_id)


def _internal_error(error: Exception, code: str, error_id: str) -> HttpReply:
    expected = isinstance(error, IiiError)
    fields = {"error": str(error), "error_id": error_id}
    _log.error("request failed", exc_info=None if expected else error, extra={"iii": fields})
    message = error.message if isinstance(error, IiiError) else f"unexpected {type(error).__name__}; see the host's log"
    return error_reply(500, code, _told(message), error_id)


def _fingerprint(call: HttpCall) -> str:
    digest = hashlib.sha256()
    for part in (call.method.encode(), call.path.encode(), call.query.encode(), call.body):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def _told(message: str) -> str:
    """Return as much of a message, which may be a handler's, as an answer carries: what a letter would keep of it."""
    return bounded_error("", message[:MAX_ERROR_BYTES]).message
