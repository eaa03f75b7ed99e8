"""Builds what every Lambda of an app is given: its code, the runtime and their libraries, without Docker.

`iii-runtime bundle` in the root of a project builds the bundle of each of its stages, and so does
`python -m iii_runtime.cdk.bundle` where the command line is not installed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from iii_runtime.cdk.bundle_files import assemble, is_assembled, measure
from iii_runtime.cdk.libraries import ensure_libraries, require_installer, require_libraries
from iii_runtime.cdk.project import Project, default_config, discover_project
from iii_runtime.core.config.values import DEFAULT_STAGE, Architecture, AwsConfig
from iii_runtime.core.errors import HostError, IiiError
from iii_runtime.hosts.embedded.manifest_discovery import DiscoveredApp
from iii_runtime.plan.manifest import read_manifest

BUNDLES = Path("build") / "lambda"
"""Where bundles are, below the root of a project."""

MAX_ZIP_BYTES = 10_000_000

_BYTES_IN_MB = 1_000_000


@dataclass(frozen=True, slots=True, order=True)
class Platform:
    """What a bundle is for.

    Attributes:
        architecture: Processor of the Lambdas.
        python: Version of their runtime, `major.minor`.
    """

    architecture: Architecture
    python: str

    @property
    def name(self) -> str:
        """Name of the bundle's folder."""
        return f"{self.architecture}-{self.python}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A folder with everything a Lambda runs.

    Attributes:
        path: The folder.
        digest: SHA-256 over names and contents of its files; the same sources make the same digest.
        unpacked_bytes: Size of the files.
        zip_bytes: Size as a zip archive.
    """

    path: Path
    digest: str
    unpacked_bytes: int
    zip_bytes: int

    def __str__(self) -> str:
        zipped, unpacked = self.zip_bytes / _BYTES_IN_MB, self.unpacked_bytes / _BYTES_IN_MB
        return f"{self.path}: {zipped:.1f} MB zipped, {unpacked:.1f} MB unpacked, sha256 {self.digest[:16]}"


def build_bundle(project: Project, platform: Platform, *, discovered: DiscoveredApp | None = None) -> Bundle:
    """Build the bundle for one platform. Needs the network if its libraries have changed since the last time.

    Args:
        project: The project.
        platform: What the bundle is for.
        discovered: What the project registers, if that is known already.

    Raises:
        HostError: `bundle_too_large`: more than `MAX_ZIP_BYTES` zipped. `libraries_unavailable`: a library cannot be
            found, or not as a wheel. And what `discover_project` raises.
    """
    known = discovered or discover_project(project)
    folder = project.root / BUNDLES
    libraries = ensure_libraries(project, folder, platform.architecture, platform.python, tracing=_traces(known))
    path = assemble(known, project, libraries, folder / platform.name)
    size = measure(path)
    bundle = Bundle(
        path=path.relative_to(project.root),
        digest=size.digest,
        unpacked_bytes=size.unpacked_bytes,
        zip_bytes=size.zip_bytes,
    )
    if bundle.zip_bytes > MAX_ZIP_BYTES:
        largest = ", ".join(f"{name} {count / _BYTES_IN_MB:.1f} MB" for name, count in size.largest)
        raise HostError(
            f"{bundle}. More than {MAX_ZIP_BYTES / _BYTES_IN_MB:.0f} MB start slowly. Largest, unpacked: {largest}. "
            "Use fewer libraries or smaller ones.",
            code="bundle_too_large",
        )
    return bundle


def build_bundles(project: Project) -> Iterator[Bundle]:
    """Build the bundle of each platform that a stage of a project asks for, and yield each when it is there.

    Raises:
        HostError: See `build_bundle`; `extra_missing`: the extra `cdk` is not installed.
    """
    require_installer()
    discovered = discover_project(project)
    for platform in platforms_of(read_manifest(discovered.manifest).config.aws):
        yield build_bundle(project, platform, discovered=discovered)


def current_bundle(project: Project, platform: Platform, discovered: DiscoveredApp) -> Path:
    """Return the folder of a bundle for synthesis, brought up to the present code without the network.

    Raises:
        HostError: `bundle_missing`: its libraries were never installed, or are of another list of requirements.
    """
    folder = project.root / BUNDLES
    tracing = _traces(discovered)
    libraries = require_libraries(project, folder, platform.architecture, platform.python, tracing=tracing)
    path = folder / platform.name
    if not is_assembled(discovered, project, libraries, path):
        assemble(discovered, project, libraries, path)
    return path


def platforms_of(aws: AwsConfig) -> list[Platform]:
    """Return the platforms that the stages of a configuration use."""
    stages = [aws.stage(DEFAULT_STAGE), *aws.stages.values()]
    return sorted({Platform(stage.architecture, stage.python) for stage in stages})


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the bundles of the project in the current folder; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m iii_runtime.cdk.bundle", description=__doc__)
    parser.add_argument("functions", nargs="*", default=["functions"], help="files, folders or modules; functions")
    parser.add_argument("--config", default=default_config(Path.cwd()), help="the configuration file; iii-config.yaml")
    parser.add_argument("--include", action="append", default=[], help="a file or folder that the code needs besides")
    parser.add_argument("--requirements", help="file with the libraries of the code")
    given = parser.parse_args(arguments)
    project = Project(
        root=Path.cwd(),
        functions=tuple(given.functions),
        config=given.config,
        include=tuple(given.include),
        requirements=given.requirements,
    )
    try:
        for bundle in build_bundles(project):
            sys.stdout.write(f"{bundle}\n")
    except IiiError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _traces(discovered: DiscoveredApp) -> bool:
    aws = read_manifest(discovered.manifest).config.aws
    return any(stage.tracing for stage in (aws.defaults, *aws.stages.values()))


if __name__ == "__main__":
    sys.exit(main())
