"""A user's project as synthesis and the bundle see it: where its code is, and what it registers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from iii_runtime.core.errors import HostError
from iii_runtime.hosts.embedded.manifest_discovery import DiscoveredApp, discover_app

CONFIG = "iii-config.yaml"


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


def default_config(root: Path) -> str | None:
    """Return the configuration file of a project that names none."""
    return CONFIG if (root / CONFIG).is_file() else None


def discover_project(project: Project) -> DiscoveredApp:
    """Import a project's code in a child process and return what it registers and consists of.

    The child sees neither AWS credentials nor anything of the CDK; what the code prints goes to standard error.

    Raises:
        ConfigError: The configuration cannot be used.
        HostError: The code cannot be imported, or is not in the project; see `discover_app`.
    """
    return discover_app(
        project.functions, project.config, project_root=project.root, env={**os.environ, **project.environment}
    )
