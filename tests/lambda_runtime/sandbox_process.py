"""One sandbox of a Lambda: the runtime interface client in a process that has what Lambda gives it, and no more."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from iii_runtime.plan.app_plan import PlannedFunction
from tests.lambda_runtime.built import DEPLOYMENT, PLACE, Built
from tests.lambda_runtime.runtime_api import Outcome, RuntimeApi
from tests.patience import PATIENCE_S

RUNTIME = "AWS_Lambda_python3.14"
"""What the environment says of the runtime: from 3.12 on the client sends answers as UTF-8, not as ASCII."""

_LOOK_S = 0.1


class SandboxProcess:
    """A sandbox. A context manager; at its end the process is killed.

    Args:
        built: What was deployed.
        function: The Lambda.
        aws: Where the services are.
        log: File for what it prints.
        bundle: The folder with the code; by default that of `built`.
        variables: Further environment variables.
    """

    def __init__(
        self,
        built: Built,
        function: PlannedFunction,
        *,
        aws: str,
        log: Path,
        bundle: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._built = built
        self._bundle = bundle or built.bundle
        self._function = function
        self._printed = log
        self._api = RuntimeApi(DEPLOYMENT.arn("lambda", f"function:{function.name}"))
        self._environment = {**_environment(function, self._bundle, aws), **(variables or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._api.__enter__()
        with self._printed.open("wb") as log:
            self._process = subprocess.Popen(
                # Without -S the packages of the environment of these tests would be found too.
                [sys.executable, "-S", "-m", "awslambdaric", self._function.handler],
                cwd=self._bundle,
                env={
                    **self._environment,
                    "AWS_LAMBDA_RUNTIME_API": self._api.address,
                    "PYTHONPATH": f"{self._bundle}:{self._built.provided}",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        process = self._running()
        process.kill()
        process.wait()
        self._api.__exit__(kind, error, traceback)

    def invoke(self, event: object, *, timeout: timedelta | None = None) -> Outcome:
        """Hand over an event and return what became of it.

        Args:
            event: A value, or its JSON as text.
            timeout: How long the invocation may take; by default as planned.
        """
        text = event if isinstance(event, str | bytes) else json.dumps(event)
        self._api.send(text, timeout or self._function.timeout)
        return self.outcome()

    def outcome(self) -> Outcome:
        """Return the next outcome; the end of the process is one too."""
        latest = time.monotonic() + PATIENCE_S
        while (found := self._api.outcome(_LOOK_S)) is None:
            if self._running().poll() is not None:
                return self._api.outcome(_LOOK_S) or Outcome(kind="ended")
            assert time.monotonic() < latest, f"no outcome:\n{self.output}"
        return found

    def exit_code(self) -> int:
        """Wait for the end of the process and return its code."""
        return self._running().wait(PATIENCE_S)

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._running().poll() is None

    @property
    def output(self) -> str:
        """Everything that it has printed."""
        return self._printed.read_text("utf-8")

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of the log. Those of the client itself, and the measurements, are not among them."""
        lines = [json.loads(line) for line in self.output.splitlines() if line.startswith("{")]
        return [line for line in lines if "_aws" not in line]

    @property
    def others(self) -> list[str]:
        """What was printed besides JSON."""
        return [line for line in self.output.splitlines() if not line.startswith("{")]

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process


def _environment(function: PlannedFunction, bundle: Path, aws: str) -> dict[str, str]:
    """Return what Lambda sets, and what leads to the services of the tests."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": ":UTC",
        "LAMBDA_TASK_ROOT": str(bundle),
        "LAMBDA_RUNTIME_DIR": "/var/runtime",
        "_HANDLER": function.handler,
        "AWS_EXECUTION_ENV": RUNTIME,
        "AWS_LAMBDA_FUNCTION_NAME": function.name,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function.memory_mb),
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{function.name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "2026/05/04/[$LATEST]0123456789abcdef",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_REGION": DEPLOYMENT.region,
        "AWS_DEFAULT_REGION": DEPLOYMENT.region,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_SESSION_TOKEN": "testing",
        **function.environment,
        "III_WEBSOCKET_URL": f"{aws}/live",
        # Not of Lambda: where the services are, and a cache of what Python compiles, so that each start is quick.
        "AWS_ENDPOINT_URL": aws,
        "AWS_ACCOUNT_ID_ENDPOINT_MODE": "disabled",
        "PYTHONPYCACHEPREFIX": str(PLACE / "compiled"),
    }
