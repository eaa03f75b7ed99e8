"""Finds out what an app registers, in a child process: none of its code runs in the process that asks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from iii_runtime.adapters.config_file import load_config
from iii_runtime.core.config import Config
from iii_runtime.core.config.stored import config_to_json
from iii_runtime.core.errors import HostError

TIMEOUT = timedelta(seconds=120)
"""How long the import of an app may take."""

_CHILD = "iii_runtime.hosts.embedded.manifest_child"
_HIDDEN = ("AWS_", "JSII_", "CDK_")
_HARMLESS = {
    "III_DISCOVERY": "1",
    # A client that a module makes while it is imported finds credentials, and none that open a door.
    "AWS_ACCESS_KEY_ID": "discovery",
    "AWS_SECRET_ACCESS_KEY": "discovery",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
_LAST_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredApp:
    """An app as it is found in a project.

    Attributes:
        manifest: Its stored form, see `iii_runtime.plan.manifest`. Its places are named from the project's root.
        code: The files and folders of the project that it consists of, absolute, by the name they are imported by: a
            package by its own, a file of a plain folder by the file's. A bundle has them in its root.
    """

    manifest: dict[str, Any]
    code: Mapping[str, Path]


def discover_manifest(
    targets: Sequence[str],
    config_path: str | Path | None,
    *,
    project_root: Path,
    env: Mapping[str, str],
    timeout: timedelta = TIMEOUT,
) -> dict[str, Any]:
    """Import an app's code in a child process and return its manifest; see `discover_app`."""
    return discover_app(targets, config_path, project_root=project_root, env=env, timeout=timeout).manifest


def discover_app(
    targets: Sequence[str],
    config_path: str | Path | None,
    *,
    project_root: Path,
    env: Mapping[str, str],
    timeout: timedelta = TIMEOUT,
) -> DiscoveredApp:
    """Import an app's code in a child process and return what it registers and consists of.

    The child has none of the AWS, CDK and jsii variables of `env`; it has credentials that work nowhere, and
    `III_DISCOVERY=1`. What the code prints goes to this process's stderr.

    Args:
        targets: Files, folders or dotted modules, from the project's root: see `discover`. Their dotted names become
            the manifest's targets. Modules of a folder without `__init__.py` have their bare names there.
        config_path: The configuration file, from the project's root; None for the defaults.
        project_root: Root of the project, the child's working directory.
        env: Environment of the child, and variables for the configuration.
        timeout: How long the import may take.

    Raises:
        ConfigError: The configuration cannot be used.
        HostError: `worker_not_found`, `worker_import_failed` (with file, line and traceback), `module_name_taken`, as
            from `discover`; `worker_outside_project`: a bundle could not have it; `discovery_timeout`;
            `discovery_failed`: the code has ended the process. Any other code is that of a registration.
    """
    root = project_root.resolve()
    _check_inside(targets, root)
    request = {"targets": list(targets), "config": config_to_json(_read_config(config_path, root, env))}
    # A file and not a pipe: a process that the user's code leaves running would keep a pipe open.
    with TemporaryFile() as said:
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            # -P: a file of the project must not be taken for a module of Python's own; -B: nothing is written there.
            [sys.executable, "-P", "-B", "-m", _CHILD],
            cwd=root,
            env={name: value for name, value in env.items() if not name.startswith(_HIDDEN)} | _HARMLESS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        )
        try:
            answer, _ = child.communicate(json.dumps(request).encode(), timeout=timeout.total_seconds())
        except subprocess.TimeoutExpired as error:
            raise _too_slow(targets, timeout) from error
        finally:
            _end(child)
        said.seek(0)
        return _read_answer(answer, said.read().decode(errors="backslashreplace"), child.returncode, targets)


def _check_inside(targets: Sequence[str], root: Path) -> None:
    for target in targets:
        path = root / target
        is_path = path.is_dir() or path.suffix == ".py"
        if is_path and not path.resolve().is_relative_to(root):
            raise HostError(
                f"{target}: it is outside the project {root}, and the bundle is made of the project. Move the code "
                "into the project, or choose a root that has it.",
                code="worker_outside_project",
            )


def _read_config(config_path: str | Path | None, root: Path, env: Mapping[str, str]) -> Config:
    if config_path is None:
        return load_config(None, env)
    path = root / config_path
    shown = path.relative_to(root) if path.is_relative_to(root) else path
    return replace(load_config(shown if root == Path.cwd() else path, env), source=str(shown))


def _read_answer(answer: bytes, said: str, returncode: int, targets: Sequence[str]) -> DiscoveredApp:
    try:
        found = json.loads(answer)
    except ValueError:
        last = "\n".join(said.rstrip().splitlines()[-_LAST_LINES:])
        raise HostError(
            f"{', '.join(targets)}: the process that imported it ended with {returncode} and no answer. Code must not "
            f"end the process while it is imported.\n{last}".rstrip(),
            code="discovery_failed",
        ) from None
    sys.stderr.write(said)
    if "error" in found:
        raise HostError(found["error"]["message"], code=found["error"]["code"])
    return DiscoveredApp(
        manifest=found["manifest"], code={name: Path(path) for name, path in sorted(found["code"].items())}
    )


def _too_slow(targets: Sequence[str], timeout: timedelta) -> HostError:
    return HostError(
        f"{', '.join(targets)}: the import took longer than {timeout.total_seconds():g} s. A module waits for "
        "something while it is imported; do that in the function.",
        code="discovery_timeout",
    )


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child, if it still runs, and with it what the user's code has started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None and not pipe.closed:
            pipe.close()
