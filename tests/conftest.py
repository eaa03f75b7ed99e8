"""What holds for every test."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import settings

from tests.told import TOLD

# A busy machine is no counterexample: times are measured elsewhere, never asserted.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_collection_finish() -> None:
    """Leave the modules of tests and libraries to themselves: looking for garbage in them takes a fifth of a run."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Share the tests out as `tests.spread` says, where there are several processes."""
    from tests.spread import Spread  # xdist, which the run of one file does not load

    return Spread(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have to tell: a process of several has no terminal."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, text in report.user_properties:
            if name == TOLD:
                terminalreporter.write(str(text))
