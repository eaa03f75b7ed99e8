"""How a handler is called: which of its parameters get the input, the request, the metadata."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from iii_runtime.core.api_types import ApiRequest
from iii_runtime.core.errors import InputInvalidError, RegistrationError
from iii_runtime.core.frozen import frozen
from iii_runtime.core.invocation import Source
from iii_runtime.core.payload import Json

Role: TypeAlias = Literal["input", "model", "request", "metadata"]
Handler: TypeAlias = Callable[..., Any]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@frozen(kw_only=True)
class ParameterPlan:
    """What one parameter of a handler is given.

    Attributes:
        name: Its name.
        role: The raw input, the validated model, the http request or the metadata sidecar.
        model: The pydantic class, or the type that contains one (`Order | None`, `list[Order]`), for the role `model`.
        keyword: Whether it is passed by keyword.
    """

    name: str
    role: Role
    model: Any = None
    keyword: bool = False


@frozen(kw_only=True)
class HandlerPlan:
    """How to call a handler, worked out once at registration."""

    handler: Handler
    is_async: bool
    parameters: tuple[ParameterPlan, ...]

    def bind(self, payload: Json, source: Source, metadata: Json) -> Callable[[], Any]:
        """Return the call with its arguments; models are validated here.

        Args:
            payload: The raw input: the request dict (http), the payload, the topic's data, the trigger event.
            source: What started the invocation; a model is read from the request's `body` over http.
            metadata: The sidecar.

        Raises:
            InputInvalidError: The input does not fit the handler's model.
        """
        arguments: list[Any] = []
        keywords: dict[str, Any] = {}
        for parameter in self.parameters:
            value = _argument(parameter, payload, source, metadata)
            if parameter.keyword:
                keywords[parameter.name] = value
            else:
                arguments.append(value)
        return lambda: self.handler(*arguments, **keywords)


def plan_raw_handler(handler: Handler) -> HandlerPlan:
    """Plan a handler of `register_function`: the raw input first, `metadata` if it is declared.

    Type hints are not looked at, as in the iii SDK.
    """
    parameters: list[ParameterPlan] = []
    for index, parameter in enumerate(_parameters(handler)):
        is_keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        if parameter.name == "metadata" and (is_keyword or (index == 1 and parameter.kind in _POSITIONAL)):
            parameters.append(ParameterPlan(name="metadata", role="metadata", keyword=is_keyword))
        elif index == 0 and parameter.kind in (*_POSITIONAL, inspect.Parameter.VAR_POSITIONAL):
            parameters.append(ParameterPlan(name=parameter.name, role="input"))
    return HandlerPlan(handler=handler, is_async=_is_async(handler), parameters=tuple(parameters))


def plan_workflow(handler: Handler, function_id: str) -> HandlerPlan:
    """Plan a workflow: its first parameter is the workflow's context, the others are as in `plan_typed_handler`.

    Raises:
        RegistrationError: It is no `async def`, has no parameter for its context, or one that nothing can be passed
            for.
    """
    if not _is_async(handler):
        raise RegistrationError(f"workflow '{function_id}' must be an `async def`, at {source_of(handler)}.")
    first = next(iter(_parameters(handler)), None)
    if first is None or first.kind not in _POSITIONAL:
        raise RegistrationError(
            f"workflow '{function_id}' needs a first parameter for its context, such as `ctx`, at {source_of(handler)}."
        )
    return plan_typed_handler(handler, function_id, skip=1)


def plan_typed_handler(handler: Handler, function_id: str, *, skip: int = 0) -> HandlerPlan:
    """Plan a decorated handler: pydantic models are validated, `ApiRequest` gets the request.

    Args:
        handler: What is called.
        function_id: Its id, for errors.
        skip: How many parameters, from the first on, are filled in by somebody else.

    Raises:
        RegistrationError: A required parameter that nothing can be passed for, or type hints that cannot be resolved.
    """
    hints = _hints(handler)
    parameters: list[ParameterPlan] = []
    has_gap = False
    for parameter in _parameters(handler)[skip:]:
        role, model = _role(parameter, hints.get(parameter.name), taken={p.role for p in parameters})
        if role is not None:
            is_keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY or has_gap
            parameters.append(ParameterPlan(name=parameter.name, role=role, model=model, keyword=is_keyword))
        elif parameter.default is parameter.empty and parameter.kind in (
            *_POSITIONAL,
            inspect.Parameter.KEYWORD_ONLY,
        ):
            raise RegistrationError(
                f"function '{function_id}': nothing can be passed for its parameter '{parameter.name}'. A handler "
                "takes one input (a dict or a pydantic model), optionally an ApiRequest and `metadata`."
            )
        else:
            has_gap = True
    return HandlerPlan(handler=handler, is_async=_is_async(handler), parameters=tuple(parameters))


def source_of(handler: Handler) -> str:
    """Return where a handler is written, as `file:line`."""
    target = inspect.unwrap(_without_partial(handler))
    code = getattr(target, "__code__", None) or getattr(type(target).__call__, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(handler)


def _argument(parameter: ParameterPlan, payload: Json, source: Source, metadata: Json) -> Any:
    if parameter.role == "metadata":
        return metadata
    if parameter.role == "input":
        return payload
    if parameter.role == "request":
        return _request(payload)
    value = _model_input(payload, source)
    try:
        return _validated(parameter.model, value)
    except InputInvalidError as error:
        if source == "http" and isinstance(value, str | bytes):
            hint = (
                f"{error.message}. The body is {type(value).__name__}, not JSON: send Content-Type: application/json."
            )
            raise InputInvalidError(hint, error.details) from None
        raise


def _request(payload: Json) -> ApiRequest[Any]:
    if not isinstance(payload, dict):
        raise InputInvalidError("the handler takes an http request, and was called without one", [])
    return ApiRequest.from_request(payload)


def _model_input(payload: Json, source: Source) -> Json:
    """Return what a model is read from: the body of an http request, one replayed from an event file included."""
    if not isinstance(payload, dict):
        return payload
    trigger = payload.get("trigger")
    is_replayed = source == "direct" and isinstance(trigger, dict) and trigger.get("type") == "http"
    is_request = source == "http" or is_replayed
    return payload.get("body") if is_request else payload


def _validated(model: Any, value: Json) -> Any:
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - only functions with a model pay for pydantic

    try:
        return model.model_validate(value) if _is_model(model) else TypeAdapter(model).validate_python(value)
    except ValidationError as error:
        details: list[dict[str, object]] = [
            {"loc": list(problem["loc"]), "msg": problem["msg"], "type": problem["type"]}
            for problem in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        lines = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'input'}: {item['msg']}" for item in details)  # type: ignore[call-overload]
        raise InputInvalidError(
            f"the input does not fit {getattr(model, '__name__', model)}: {lines}", details
        ) from None


def _role(parameter: inspect.Parameter, hint: Any, taken: set[Role]) -> tuple[Role | None, Any]:
    if parameter.kind is inspect.Parameter.VAR_KEYWORD or parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return None, None
    origin = typing.get_origin(hint) or hint
    if isinstance(origin, type) and issubclass(origin, ApiRequest):
        return "request", None
    has_input = bool(taken & {"input", "model"})
    if parameter.name == "metadata" and (taken or parameter.kind is inspect.Parameter.KEYWORD_ONLY):
        return "metadata", None
    if _contains_model(hint) and not has_input:
        return "model", hint
    is_required = parameter.default is parameter.empty
    if parameter.kind in _POSITIONAL and not has_input and (is_required or not taken):
        return "input", None
    return None, None


def _is_model(hint: Any) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(hint, type) and issubclass(hint, pydantic.BaseModel)


def _contains_model(hint: Any) -> bool:
    return _is_model(hint) or any(_contains_model(part) for part in typing.get_args(hint))


def _hints(handler: Handler) -> Mapping[str, Any]:
    target = _without_partial(handler)
    try:
        return typing.get_type_hints(target if inspect.isroutine(target) else type(target).__call__)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        raise RegistrationError(
            f"{source_of(handler)}: the type hints of the handler cannot be resolved ({error}). "
            "Import the names they use at module level."
        ) from error


def _without_partial(handler: Handler) -> Handler:
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler


def _parameters(handler: Handler) -> list[inspect.Parameter]:
    try:
        return list(_signature(handler).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("data", inspect.Parameter.POSITIONAL_ONLY)]


def _signature(handler: Handler) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        # From here on a signature evaluates the annotations, and fails where only a type checker knows their names. As
        # text they are as little in the way as before; `_hints` is what evaluates them.
        from annotationlib import Format  # noqa: PLC0415 - older versions have none

        return inspect.signature(handler, annotation_format=Format.STRING)
    return inspect.signature(handler)


def _is_async(handler: Handler) -> bool:
    if inspect.iscoroutinefunction(handler):
        return True
    return not inspect.isroutine(handler) and inspect.iscoroutinefunction(type(handler).__call__)
