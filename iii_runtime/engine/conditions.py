"""Conditions: a function that decides whether a trigger fires. Only an explicit False skips, as in iii."""

from __future__ import annotations

import copy
from dataclasses import replace

from iii_runtime.core.call import Call
from iii_runtime.engine.invoke import FunctionInvoker


async def condition_holds(invoker: FunctionInvoker, condition: str | None, call: Call) -> bool:
    """Return whether a trigger with this condition fires for `call`.

    Raises:
        InvocationError: The condition itself failed; what follows differs by trigger type.
    """
    if condition is None:
        return True
    asked = replace(call, function_id=condition, identity=None, timeout=None, payload=copy.deepcopy(call.payload))
    return await invoker.invoke(asked) is not False


async def invoke_if(invoker: FunctionInvoker, condition: str | None, call: Call) -> bool:
    """Run the function of `call` if its trigger fires, and return whether it did.

    A function with a host of its own decides there; it then counts as run.

    Raises:
        InvocationError: The condition or the function failed.
    """
    if condition is not None and invoker.is_remote(call.function_id):
        call = replace(call, condition=condition)
    elif not await condition_holds(invoker, condition, call):
        return False
    await invoker.invoke_raw(call)
    return True
