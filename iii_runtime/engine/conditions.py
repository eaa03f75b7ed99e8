"""Conditions: a function that decides whether a trigger fires. Only an explicit False skips, as in iii."""

from __future__ import annotations

import copy
from dataclasses import replace

from iii_runtime.engine.invoke import Call, FunctionInvoker


async def condition_holds(invoker: FunctionInvoker, condition: str | None, call: Call) -> bool:
    """Return whether a trigger with this condition fires for `call`.

    Raises:
        InvocationError: The condition itself failed; what follows differs by trigger type.
    """
    if condition is None:
        return True
    asked = replace(call, function_id=condition, identity=None, timeout=None, payload=copy.deepcopy(call.payload))
    return await invoker.invoke(asked) is not False
