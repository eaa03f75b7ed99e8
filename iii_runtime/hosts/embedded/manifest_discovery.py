"""Finds out what an app registers, in a child process: none of its code runs in the process that asks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from iii_runtime.adapters.config_file import load_config
from iii_runtime.core.config import Config
from iii_runtime.core.config.stored import config_to_json
from iii_runtime.core.errors import HostError
from iii_runtime.hosts.import_failure import innermost_place

TIMEOUT = timedelta(seconds=120)
"""How long the import of an app may take."""

_CHILD = "iii_runtime.hosts.embedded.manifest_child"
_HIDDEN = ("AWS_", "JSII_", "CDK_")
_MARK = "III_DISCOVERY"
"""A variable of the child, by which code can tell that it is looked at."""

_HARMLESS = {
    _MARK: "1",
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
_LAST_CHARACTERS = 4000
_LAST_WORDS = timedelta(seconds=5)
_DUMP = "Fatal Python error: "


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
        HostError: `worker_import_failed`, with file, line and traceback; if the code has killed the process, with the
            line where that is known. `discovery_timeout`, with the line that waits. `worker_outside_project`: a bundle
            could not have it. `worker_not_found` and `module_name_taken`, as from `discover`. `discovery_nested`, in
            code that is itself being discovered. Any other code is that of a registration.
    """
    if _MARK in env:
        raise HostError(
            "something among the functions, such as an app.py, synthesises when it is imported. Synthesis imports the "
            "functions, so that would go on without end. Put the functions into a folder of their own.",
            code="discovery_nested",
        )
    root = project_root.resolve()
    _check_inside(targets, root)
    request = {"targets": list(targets), "config": config_to_json(_read_config(config_path, root, env))}
    # Files and not pipes: a process that the user's code leaves running would keep a pipe open.
    with TemporaryFile() as asked, TemporaryFile() as answered, TemporaryFile() as said:
        asked.write(json.dumps(request).encode())
        asked.seek(0)
        child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            # -P: a file of the project must not be taken for a module of Python's own; -B: nothing is written there.
            [sys.executable, "-P", "-B", "-m", _CHILD],
            cwd=root,
            env={name: value for name, value in env.items() if not name.startswith(_HIDDEN)} | _HARMLESS,
            stdin=asked,
            stdout=answered,
            stderr=said,
            start_new_session=True,
        )
        try:
            child.wait(timeout.total_seconds())
        except subprocess.TimeoutExpired:
            raise _too_slow(targets, timeout, _stopped(child, said)) from None
        finally:
            _end(child)
        answered.seek(0)
        said.seek(0)
        return _read_answer(answered.read(), said.read().decode(errors="backslashreplace"), child.returncode, targets)


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
        place, last = _last_words(said)
        raise HostError(
            f"{place or ', '.join(targets)}: the process that imports it ended with {_shown(returncode)} and no "
            f"answer. Code must not end the process while it is imported.\n{last}".rstrip(),
            code="worker_import_failed",
        ) from None
    sys.stderr.write(said)
    if "error" in found:
        raise HostError(found["error"]["message"], code=found["error"]["code"])
    return DiscoveredApp(
        manifest=found["manifest"], code={name: Path(path) for name, path in sorted(found["code"].items())}
    )


def _too_slow(targets: Sequence[str], timeout: timedelta, said: str) -> HostError:
    place, last = _last_words(said)
    return HostError(
        f"{place or ', '.join(targets)}: the import took longer than {timeout.total_seconds():g} s. A module waits for "
        f"something while it is imported; do that in the function.\n{last}".rstrip(),
        code="discovery_timeout",
    )


def _stopped(child: subprocess.Popen[bytes], said: IO[bytes]) -> str:
    """End a child so that it tells where it was, and return what it has written."""
    child.send_signal(signal.SIGABRT)
    with suppress(subprocess.TimeoutExpired):
        child.wait(_LAST_WORDS.total_seconds())
    said.seek(0)
    return said.read().decode(errors="backslashreplace")


def _last_words(said: str) -> tuple[str | None, str]:
    """Return where a process was when it was killed, if it could tell, and the end of what it had written before."""
    before, _, stack = said.rpartition(_DUMP) if _DUMP in said else (said, "", "")
    places = [(file, int(line)) for file, line in re.findall(r'^  File "(.+)", line (\d+)', stack, re.MULTILINE)]
    last = before[-_LAST_CHARACTERS:].rstrip().splitlines()[-_LAST_LINES:]
    return innermost_place(places), "\n".join(last)


def _shown(returncode: int) -> str:
    return str(returncode) if returncode >= 0 else signal.Signals(-returncode).name


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child, if it still runs, and with it what the user's code has started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
