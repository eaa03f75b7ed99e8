"""One emulator for all tests of a run, and what it printed for each that fails."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from tests.e2e.deployed import CATALOGUE, Deployed
from tests.e2e.emulator import LOGS, Emulator
from tests.e2e.project import Project

_LAST_LINES = 60

_EMULATOR = pytest.StashKey[Emulator]()


@pytest.fixture(scope="session")
def emulator(pytestconfig: pytest.Config) -> Iterator[Emulator]:
    """The emulator."""
    with Emulator() as running:
        pytestconfig.stash[_EMULATOR] = running
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what the emulator said last."""
    report = yield
    emulator = item.config.stash.get(_EMULATOR, None)
    if report.failed and emulator is not None and emulator.log.is_file():
        lines = emulator.log.read_text("utf-8", "replace").splitlines()
        told = [line for line in lines if '"FeedLag"' not in line]
        report.sections.append((f"last lines of {emulator.log}", "\n".join(told[-_LAST_LINES:])))
    return report


@pytest.fixture(scope="session")
def bootstrapped(emulator: Emulator) -> Project:
    """The project, bundled, in an account with what the CDK needs."""
    project = Project(LOGS / "project", emulator)
    project.write()
    project.bundle()
    project.bootstrap()
    return project


@pytest.fixture(scope="session")
def deployed(emulator: Emulator, bootstrapped: Project) -> Deployed:
    """Stage e2e, with a catalogue."""
    bootstrapped.deploy()
    stage = Deployed(emulator, bootstrapped)
    stage.fill_catalogue(CATALOGUE)
    return stage
