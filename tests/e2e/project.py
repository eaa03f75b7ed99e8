"""The project that is deployed: a copy of the functions and the configuration, to be changed between deployments."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.emulator import ACCOUNT, REGION, ROOT, Emulator

STAGE = "e2e"
PARTS = "e2e-parts"
"""A queue of the tests: FIFO by order."""
APP = Path(__file__).with_name("app")
CDK = ROOT / "node_modules" / ".bin" / "cdk"
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}
_BACKOFF_MS = 500
_COMMAND_S = 300.0


class CommandFailedError(Exception):
    """A command ended with another exit code than 0; the text is what it printed."""


class Project:
    """A folder with everything `cdk deploy` is run on, and the commands run in it.

    Attributes:
        root: The folder. What `make bundle` would leave below `build` is kept from run to run.
        stage: The stage that commands are about.
        timings: Seconds of each command, in order.
    """

    def __init__(self, root: Path, emulator: Emulator, *, stage: str = STAGE) -> None:
        self.root = root
        self.stage = stage
        self.timings: list[tuple[str, float]] = []
        self._environment = {
            **emulator.environment,
            "PYTHONUNBUFFERED": "1",
            "CI": "1",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "CDK_VALIDATION": "false",  # it takes seconds at each synthesis, and is tested where templates are
            "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": "true",
            "JSII_SILENCE_WARNING_DEPRECATED_NODE_VERSION": "true",
        }

    def write(self) -> None:
        """Write the project anew, as a fresh clone would have it."""
        self.root.mkdir(parents=True, exist_ok=True)
        for name in ("functions", "e2e_functions", "deployed", "cdk.out"):
            shutil.rmtree(self.root / name, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "functions", self.root / "functions", ignore=ignored)
        if (APP / "e2e_functions").is_dir():
            shutil.copytree(APP / "e2e_functions", self.root / "e2e_functions", ignore=ignored)
        shutil.copy(ROOT / "constraints.txt", self.root)
        settings = json.loads((ROOT / "cdk.json").read_text("utf-8"))
        settings["app"] = f"{sys.executable} {APP / 'app.py'}"
        (self.root / "cdk.json").write_text(json.dumps(settings), "utf-8")
        self.configure(e2e_config())

    def configure(self, config: Mapping[str, Any]) -> None:
        """Replace the configuration."""
        (self.root / "iii-config.yaml").write_text(yaml.safe_dump(dict(config), sort_keys=False), "utf-8")

    def bundle(self) -> str:
        """Build the bundle of the stage; needs the package registry once."""
        # Under the environment of this process: it says where packages come from, and AWS has no part in it.
        return self._run(os.environ, sys.executable, "-m", "iii_runtime.cdk.bundle", *self._functions())

    def bootstrap(self) -> str:
        """Create what the CDK itself needs in the account."""
        return self.cdk("bootstrap", f"aws://{ACCOUNT}/{REGION}")

    def deploy(self) -> str:
        """Synthesise and deploy the stage as the project is now."""
        return self.cdk("deploy", "--all", "--require-approval", "never", "--context", f"stage={self.stage}")

    def destroy(self) -> str:
        """Destroy the stage."""
        return self.cdk("destroy", "--all", "--force", "--context", f"stage={self.stage}")

    def outputs(self) -> dict[str, str]:
        """Return the outputs of the last deployment, of all its stacks."""
        found = json.loads((self.root / "deployed" / "last-deploy.json").read_text("utf-8"))
        return {name: value for stack in found.values() for name, value in stack.items()}

    def cdk(self, *arguments: str) -> str:
        """Run the CDK's command line."""
        return self.run(str(CDK), *arguments, "--no-notices", "--no-version-reporting")

    def cli(self, *arguments: str) -> str:
        """Run `iii-runtime ... --stage e2e`."""
        return self.run(sys.executable, "-m", "iii_runtime.cli", *arguments, "--stage", self.stage)

    def ask(self, *arguments: str) -> Any:
        """Run `iii-runtime ... --stage e2e --json` and return what it prints."""
        return json.loads(self.cli(*arguments, "--json"))

    def run(self, *command: str) -> str:
        """Run a command in the project's folder, under the environment of the emulator; return what it printed.

        Raises:
            CommandFailedError: Another exit code than 0.
        """
        return self._run(self._environment, *command)

    def _run(self, environment: Mapping[str, str], *command: str) -> str:
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False, timeout=_COMMAND_S
        )
        self.timings.append((" ".join(command[-4:]), time.monotonic() - began))
        if done.returncode != 0:
            raise CommandFailedError(f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def _functions(self) -> Sequence[str]:
        return [name for name in ("functions", "e2e_functions") if (self.root / name).is_dir()]


def e2e_config() -> dict[str, Any]:
    """Return the product's configuration with a stage for the emulator, and waits that are over soon.

    The Lambdas run under the interpreter of the emulator, on the processor of this machine.
    """
    config: dict[str, Any] = yaml.safe_load((ROOT / "iii-config.yaml").read_text("utf-8"))
    sections = {worker["name"]: worker.setdefault("config", {}) for worker in config["workers"]}
    for queue in sections["iii-queue"]["queue_configs"].values():
        queue["backoff_ms"] = _BACKOFF_MS
    sections["iii-queue"]["queue_configs"][PARTS] = {
        "type": "fifo",
        "message_group_field": "order_id",
        "backoff_ms": _BACKOFF_MS,
    }
    sections["iii-aws"]["stages"] = {
        STAGE: {
            "architecture": _ARCHITECTURES[platform.machine()],
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "log_retention_days": 1,
        }
    }
    # Filled in where the product's configuration is read; here there is nobody to keep out.
    sections["iii-http"].update(port=3111, auth="none")
    sections["iii-stream"].update(port=3112, auth="none")
    return config
