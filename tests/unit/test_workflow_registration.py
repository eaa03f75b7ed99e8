"""How workflows are registered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import iii_runtime
from iii_runtime import RegistrationError, Worker, WorkflowContext, register_worker
from iii_runtime.core.config import Config
from iii_runtime.core.registry import Catalog
from iii_runtime.plan.checks import check_app


@pytest.fixture
def worker() -> Worker:
    return register_worker()


async def workflow(ctx: WorkflowContext, order: Any) -> None:
    """Fulfil an order."""


def test_a_workflow_is_a_function_with_its_own_bounds(worker: Worker) -> None:
    decorated = worker.workflow("orders::fulfil", run_timeout=timedelta(days=3), memory_mb=256)(workflow)
    assert decorated is workflow
    (spec,) = worker.registry.functions()
    assert spec.workflow is not None
    assert (spec.workflow.run_timeout, spec.workflow.max_steps) == (timedelta(days=3), 10_000)
    assert (spec.description, spec.options.memory_mb, spec.module) == ("Fulfil an order.", 256, __name__)


def test_a_plain_function_is_no_workflow(worker: Worker) -> None:
    with pytest.raises(RegistrationError, match="must be an `async def`"):
        worker.workflow("orders::fulfil")(lambda ctx: None)


def test_a_workflow_without_a_parameter_for_its_context_is_refused(worker: Worker) -> None:
    async def nothing() -> None: ...

    with pytest.raises(RegistrationError, match="first parameter for its context"):
        worker.workflow("orders::fulfil")(nothing)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("workflow_id", ""),
        ("workflow_id", "order..id"),
        ("workflow_id", 3),
        ("run_timeout", 60),
        ("run_timeout", timedelta(0)),
        ("run_timeout", timedelta(days=367)),
        ("on_failure", " "),
        ("max_steps", 0),
        ("max_steps", 10_001),
        ("max_steps", True),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_its_name(worker: Worker, option: str, value: Any) -> None:
    with pytest.raises(RegistrationError, match=option):
        worker.workflow("orders::fulfil", **{option: value})
    assert worker.registry.functions() == []


def test_a_function_to_tell_that_nobody_has_registered_is_an_error_with_a_suggestion(worker: Worker) -> None:
    worker.function("orders::failed")(lambda data: None)
    worker.workflow("orders::fulfil", on_failure="orders::faild")(workflow)
    (finding,) = check_app(Config(), Catalog.of([worker.registry]))
    assert finding.level == "error"
    assert "did you mean 'orders::failed'" in finding.message


def test_every_name_of_the_package_is_there_and_no_other() -> None:
    for name in iii_runtime.__all__:
        assert getattr(iii_runtime, name) is not None
        assert name in dir(iii_runtime)
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = iii_runtime.nothing_of_ours  # type: ignore[attr-defined]
