"""From the first event of a Lambda to its sandbox, and from each event to its handler."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from typing import TypeAlias

from iii_runtime.core.errors import IiiError
from iii_runtime.core.message import printable
from iii_runtime.core.payload import Json
from iii_runtime.hosts.aws_lambda.context import LambdaContext
from iii_runtime.hosts.aws_lambda.environment import read_environment
from iii_runtime.hosts.aws_lambda.observe import EmfMeter, start_logging
from iii_runtime.hosts.aws_lambda.sandbox import Sandbox, open_sandbox

Handle: TypeAlias = Callable[[Sandbox, object, LambdaContext], Json]
"""Handles one event in a sandbox; what it raises is an error of the invocation."""

EntryPoint: TypeAlias = Callable[[object, LambdaContext], Json]

_log = logging.getLogger("iii_runtime.host")


def entry_point(handle: Handle, role: str) -> EntryPoint:
    """Return what Lambda calls. The sandbox is made at the first event, and kept for those that follow.

    A start that fails is an error of that event, and tried again at the next one.

    Args:
        handle: Handles the events.
        role: Name of the Lambda in logs and traces, where it does not run a registered function.
    """

    @functools.cache
    def started() -> EntryPoint:
        return _start(handle, role)

    def handler(event: object, context: LambdaContext) -> Json:
        try:
            return started()(event, context)
        except IiiError as error:
            # Lambda's own line has the text alone.
            _log.error("the event was not handled", extra={"iii": {"code": error.code, "error": error.message}})
            # Lambda's client writes it as UTF-8; what it cannot write ends the process.
            error.args = (printable(str(error)),)
            raise

    return handler


def _start(handle: Handle, role: str) -> EntryPoint:
    environment = read_environment(os.environ)
    service = environment.function_id or role
    logger = start_logging(service, environment.log_level)

    def invoke(event: object, context: LambdaContext) -> Json:
        logger.append_keys(function_request_id=context.aws_request_id)
        return handle(sandbox, event, context)

    sandbox = open_sandbox(environment, EmfMeter(environment.deployment))
    if not environment.is_tracing:
        return invoke
    from iii_runtime.hosts.aws_lambda.tracing import traced  # noqa: PLC0415 - only a stage that traces pays for it

    return traced(invoke, service)
