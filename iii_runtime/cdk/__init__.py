"""CDK constructs that synthesise an app from its plan. Needs the extra `cdk`.

`from iii_runtime.cdk import IiiApp, IiiStacks`. The bundle and the manifest do without the CDK, hence it is loaded with
the constructs only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iii_runtime.cdk.app import IiiApp, IiiStacks

__all__ = ["IiiApp", "IiiStacks"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from iii_runtime.cdk import app  # noqa: PLC0415 - hundreds of megabytes, and a process of Node

        return getattr(app, name)
    raise AttributeError(f"module 'iii_runtime.cdk' has no attribute '{name}'")
