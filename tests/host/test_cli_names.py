"""Files beside the workers, or workers themselves, that are called like a module of Python's own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.host.commands import refused, run
from tests.host.process import DevProcess

WORKER = "from iii_runtime import register_worker\nworker = register_worker(worker_name='named')\n"


@pytest.mark.process
def test_a_host_starts_beside_a_file_that_is_called_like_a_module_of_python(tmp_path: Path) -> None:
    for name in ("queue", "types"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('this is not the module of Python')\n")
    (tmp_path / "neighbour.py").write_text(WORKER)
    (tmp_path / "app.py").write_text("from neighbour import worker\n")
    with DevProcess(tmp_path, "app.py") as process:
        process.wait_for("ready")
        process.signal(signal.SIGTERM)
        assert process.end() == 0


@pytest.mark.usefixtures("own_folder")
@pytest.mark.parametrize("name", ["queue", "statistics", "antigravity"])
def test_a_check_and_a_listing_refuse_a_worker_that_is_called_like_a_module_of_python(name: str) -> None:
    Path(f"{name}.py").write_text(WORKER)
    checked = run("config", "check", "--worker", f"{name}.py")
    assert (checked.exit_code, f"another module is called '{name}'" in checked.stdout) == (1, True)
    assert "error: module_name_taken: " in refused(2, "functions", "--worker", f"{name}.py")
