"""CDK constructs that synthesise an app from its plan. Needs the extra `cdk`.

`from iii_runtime.cdk import IiiApp, IiiStacks`. The bundle and the manifest do without the CDK, hence it is loaded with
the constructs only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iii_runtime.core.errors import HostError

if TYPE_CHECKING:
    from iii_runtime.cdk.app import IiiApp, IiiStacks

__all__ = ["IiiApp", "IiiStacks"]

_EXTRA = frozenset({"aws_cdk", "constructs", "jsii"})


class ExtraMissingError(HostError, ImportError):
    """`extra_missing`: the constructs cannot be imported, for the extra `cdk` is not installed."""

    code = "extra_missing"


def __getattr__(name: str) -> object:
    if name in __all__:
        try:
            from iii_runtime.cdk import app  # noqa: PLC0415 - hundreds of megabytes, and a process of Node
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _EXTRA:
                raise
            raise ExtraMissingError(f"{name} needs the extra: pip install 'iii-runtime[cdk]'") from error
        return getattr(app, name)
    raise AttributeError(f"module 'iii_runtime.cdk' has no attribute '{name}'")
