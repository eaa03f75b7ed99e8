"""A project to build a bundle of, without the network."""

from __future__ import annotations

from pathlib import Path

from iii_runtime.cdk import libraries
from iii_runtime.cdk.bundle import BUNDLES
from iii_runtime.cdk.project import Project

WORKER = """
from iii_runtime import register_worker

worker = register_worker(worker_name="shop")

@worker.function("shop::buy")
def buy(order: dict) -> dict:
    return order
"""


def new_project(root: Path) -> Project:
    """Make a project with one file of functions, and libraries as if uv had installed them."""
    root.mkdir()
    (root / "shop.py").write_text(WORKER)
    made = Project(root=root, functions=("shop.py",), config=None)
    install(made)
    return made


def install(project: Project, architecture: str = "arm64", python: str = "3.14") -> None:
    """Put one small library where the libraries of a bundle are."""
    place = project.root / BUNDLES / f"libraries-{architecture}-{python}"
    (place / "python" / "small").mkdir(parents=True)
    (place / "python" / "small" / "__init__.py").write_text("SIZE = 'small'\n")
    inputs = libraries._inputs(project, architecture, python, tracing=False)
    libraries.mark_installed(place, inputs)
