"""Traces with X-Ray, if a stage asks for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from iii_runtime.hosts.aws_lambda.context import LambdaContext

Result = TypeVar("Result")

_log = logging.getLogger("iii_runtime.host")
_PATCHED = ("botocore",)


def traced(
    handle: Callable[[object, LambdaContext], Result], service: str
) -> Callable[[object, LambdaContext], Result]:
    """Return `handle` as a subsegment of each invocation, with a subsegment for each call of AWS. No content is traced.

    Without the library of X-Ray in the bundle `handle` itself is returned, and a warning logged.

    Args:
        handle: Handles an event.
        service: Name of the annotation `Service`.
    """
    from aws_lambda_powertools import Tracer  # noqa: PLC0415 - only a stage that traces pays for it

    try:
        tracer = Tracer(service=service, patch_modules=_PATCHED)
    except ModuleNotFoundError as error:
        fields = {"missing": error.name, "remedy": "add aws-lambda-powertools[tracer] to the requirements"}
        _log.warning("not traced: the bundle has no library for it", extra={"iii": fields})
        return handle
    captured: Callable[[object, LambdaContext], Result] = tracer.capture_lambda_handler(
        handle, capture_response=False, capture_error=False
    )
    return captured
