"""Every request that the code under test sends to AWS, seen before it is sent and after it was answered.

boto3 clients are slow to make, so one set of them serves the whole test run. Who sends a request is known by a context
variable: the `Watcher` of the invocation, which may count it, answer it, refuse it, or kill the invocation instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeAlias, cast

import boto3
import botocore.session
from botocore.model import OperationModel
from moto.core.models import botocore_stubber

from iii_runtime.adapters.aws.clients import Clients

Parameters: TypeAlias = Mapping[str, Any]
Reply: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request to a service.

    Attributes:
        service: As boto3 names it, such as `sqs`.
        operation: As AWS names it, such as `SendMessage`.
        parameters: What was asked.
    """

    service: str
    operation: str
    parameters: Parameters = field(repr=False)

    def __str__(self) -> str:
        return f"{self.service}.{self.operation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer of a watcher in place of the service's own: a reply, or an error with its code.

    Attributes:
        reply: The members of the answer; those of an error are under `Error`.
        status: HTTP status; from 300 on the client raises.
    """

    reply: Reply
    status: int = 200


class Watcher(Protocol):
    """Who wants to know of requests."""

    def before(self, call: Call) -> Answered | None:
        """Take note of a request before it is sent; an answer keeps it from being sent."""
        ...

    def after(self, call: Call, reply: Reply) -> None:
        """Take note of an answer."""
        ...


_watcher: ContextVar[Watcher | None] = ContextVar("aws_watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher | None) -> Iterator[None]:
    """Let a watcher see the requests of this context: of this thread, and of everything it starts."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def refuse(code: str, message: str = "refused by the test", status: int = 400) -> Answered:
    """Return the answer of a service that refuses."""
    return Answered(reply={"Error": {"Code": code, "Message": message}, **_metadata(status)}, status=status)


class SharedSession(boto3.session.Session):
    """Hands out one client for each service, region and endpoint, whoever asks."""

    _lock = threading.RLock()
    _made: ClassVar[dict[tuple[str, str, str], Any]] = {}

    def client(self, service_name: str, *arguments: Any, **options: Any) -> Any:
        """Return the client of a service; what it was first made with counts."""
        key = (service_name, str(options.get("region_name")), str(options.get("endpoint_url")))
        with self._lock:
            if key not in self._made:
                client = super().client(cast(Any, service_name), *arguments, **options)
                _tap(client, service_name)
                self._made[key] = client
            return self._made[key]


_core = botocore.session.Session()  # after the import of moto, which answers for sessions made from then on
_core.set_credentials("testing", "testing")
_core.set_config_variable("account_id_endpoint_mode", "disabled")  # moto knows the plain endpoints only
_session = SharedSession(botocore_session=_core)


def shared_session(**_: object) -> SharedSession:
    """Return the session whose clients are watched, for code that would make one of its own."""
    return _session


def shared_clients(region: str) -> Clients:
    """Return clients of a region whose requests are watched."""
    return Clients(region, session=_session)


@dataclass(frozen=True, slots=True)
class _Http:
    """What botocore wants to know of an answer that came from a watcher."""

    status_code: int


def _tap(client: Any, service: str) -> None:
    events = client.meta.events

    def remember(params: Parameters, context: dict[str, Any], **_: object) -> None:
        context["aws_parameters"] = dict(params)

    def before(model: OperationModel, context: dict[str, Any], **_: object) -> tuple[_Http, Reply] | None:
        watcher = _watcher.get()
        if watcher is None:
            return None
        answered = watcher.before(_call(service, model, context))
        return None if answered is None else (_Http(answered.status), answered.reply)

    def after(model: OperationModel, parsed: Reply, context: dict[str, Any], **_: object) -> None:
        watcher = _watcher.get()
        if watcher is not None:
            watcher.after(_call(service, model, context), parsed)

    def stay_here(**_: object) -> None:
        if not botocore_stubber.enabled:
            raise RuntimeError(f"a request to {service} outside of the simulator")

    events.register_first("before-send", stay_here)
    events.register("provide-client-params", remember)
    events.register("before-call", before)
    events.register("after-call", after)


def _call(service: str, model: OperationModel, context: Mapping[str, Any]) -> Call:
    return Call(service=service, operation=model.name, parameters=context.get("aws_parameters", {}))


def _metadata(status: int) -> dict[str, Any]:
    return {"ResponseMetadata": {"HTTPStatusCode": status, "RequestId": "test", "HTTPHeaders": {}, "RetryAttempts": 0}}
