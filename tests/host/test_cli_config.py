"""`config check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.host.commands import WORKER, answer, done, run

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.usefixtures("shop")
class TestConfigCheck:
    def test_a_sound_app_is_exit_code_0(self) -> None:
        assert done("config", "check").endswith("functions: no errors\n")
        assert answer("config", "check") == {"ok": True, "config": None, "workers": ["functions"], "found": []}

    def test_everything_that_is_wrong_is_said_at_once(self) -> None:
        Path("iii.yaml").write_text("workers:\n  - name: iii-http\n    config: { port: x, hots: 1 }\n")
        Path("functions", "broken.py").write_text("import nothing_like_this\n")
        result = run("config", "check", "iii.yaml")
        assert result.exit_code == 1
        assert result.stdout.count("error: iii.yaml:3") == 2
        assert "broken.py:1" in result.stdout
        assert result.stdout.endswith("3 errors\n")

    def test_findings_of_config_and_workers_together_are_errors_too(self) -> None:
        Path("functions", "shop_worker.py").write_text(WORKER.replace('Queue("default")', 'Queue("defualt")'))
        result = run("config", "check", "--json")
        assert result.exit_code == 1
        (found,) = json.loads(result.stdout)["found"]
        assert found["level"] == "error"
        assert "did you mean 'default'?" in found["message"]
