"""A user's project as synthesis and the bundle see it: where its code is, and what it registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iii_runtime.core.errors import HostError

CONFIG = "iii-config.yaml"
DISCOVERY_TIMEOUT_S = 120
"""How long the import of the code may take."""

_HIDDEN = ("AWS_", "JSII_", "CDK_")
_HARMLESS = {
    # Clients that modules make when they are imported find something, and nothing that opens a door.
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "III_DISCOVERY": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Where an app's code and settings are.

    Attributes:
        root: Folder that everything else is relative to; the code is imported from there.
        functions: Files, folders or dotted modules that register the functions.
        config: The configuration file; None runs on defaults.
        include: Files and folders that the code needs besides the modules it imports, such as templates.
        requirements: File with the libraries of the code, one a line; None means `requirements.txt` beside the
            first of `functions`, if there is one.
        environment: Variables that the code may want when it is imported.
    """

    root: Path
    functions: tuple[str, ...] = ("functions",)
    config: str | None = CONFIG
    include: tuple[str, ...] = ()
    requirements: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def requirements_file(self) -> Path | None:
        """Return the file with the libraries of the code, if there is one.

        Raises:
            HostError: `requirements_missing`: the file that was named does not exist.
        """
        if self.requirements is not None:
            named = self.root / self.requirements
            if not named.is_file():
                raise HostError(f"{named}: no such file; it should list the libraries.", code="requirements_missing")
            return named
        first = self.root / self.functions[0]
        beside = (first if first.is_dir() else first.parent) / "requirements.txt"
        return beside if beside.is_file() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What the import of a project's code shows.

    Attributes:
        manifest: The app as data, see `iii_runtime.plan.manifest`.
        code: Files and folders that make up the code, absolute, by the name they are imported by.
    """

    manifest: Mapping[str, Any]
    code: Mapping[str, Path]


def default_config(root: Path) -> str | None:
    """Return the configuration file of a project that names none."""
    return CONFIG if (root / CONFIG).is_file() else None


def describe(project: Project) -> Description:
    """Import a project's code in a child process and return what it registers.

    The child sees neither AWS credentials nor anything of the CDK; what the code prints goes to standard error.

    Raises:
        HostError: `discovery_failed`: the code or the configuration cannot be read; the message is the child's.
    """
    request = {"functions": list(project.functions), "config": project.config}
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_HIDDEN)}
    command = [sys.executable, "-m", "iii_runtime.cdk.describe", json.dumps(request)]
    try:
        child = subprocess.run(  # noqa: S603 - our own interpreter and module
            command,
            cwd=project.root,
            env={**environment, **project.environment, **_HARMLESS},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=DISCOVERY_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise HostError(
            f"{', '.join(project.functions)}: the import took longer than {DISCOVERY_TIMEOUT_S} s. A module waits for "
            "something when it is imported; do that in the handler.",
            code="discovery_failed",
        ) from error
    if child.returncode != 0:
        raise HostError(child.stderr.strip() or f"discovery ended with {child.returncode}", code="discovery_failed")
    sys.stderr.write(child.stderr)
    answer = json.loads(child.stdout)
    return Description(
        manifest=answer["manifest"], code={name: Path(path) for name, path in sorted(answer["code"].items())}
    )
