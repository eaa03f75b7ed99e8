"""Where commands run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.commands import WORKER


@pytest.fixture
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Work in a folder of its own, and undo what commands leave behind."""
    monkeypatch.chdir(tmp_path)
    for name in ("III_DATA", "III_CONFIG", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    levels = {name: logging.getLogger(name).level for name in ("iii_runtime", "iii.logger")}
    yield
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project: the default folder of workers, no configuration."""
    (tmp_path / "functions").mkdir()
    (tmp_path / "functions" / "shop_worker.py").write_text(WORKER)
    return tmp_path
