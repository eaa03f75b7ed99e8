"""The stacks of the order pipeline: whatever is registered in `functions/` and declared in `iii-config.yaml`."""

from __future__ import annotations

from pathlib import Path

from constructs import Construct

from iii_runtime.cdk import IiiStacks

ROOT = Path(__file__).resolve().parents[1]


def add_stacks(scope: Construct) -> IiiStacks:
    """Create the stacks of the stage that the context names (`-c stage=prod`); `dev` if it names none."""
    return IiiStacks(scope, project_root=ROOT, functions="functions", config="iii-config.yaml")
