"""The libraries of a bundle, installed by uv for the processor and Python of the Lambdas."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from iii_runtime.cdk.file_tree import COMPILED, digest_of, files_below
from iii_runtime.cdk.project import CONFIG, Project
from iii_runtime.core.errors import HostError

RUNTIME_LIBRARIES = ("pydantic", "croniter", "tzdata", "aws-lambda-powertools")
"""What the runtime needs on Lambda, of all that it depends on. The ranges are those of its own requirements."""

PROVIDED = ("boto3", "botocore", "s3transfer", "urllib3")
"""What Lambda brings: resolved with the others, so that what they share fits, and then left out."""

TRACING_LIBRARIES = ("aws-xray-sdk",)

CONSTRAINTS = "constraints.txt"
"""Versions to keep to, in the root of a project."""

_DISTRIBUTION = "iii-runtime"
_MARK = ".installed"
_LOCK = "requirements.lock"
_LAST_WITH_OLD_GLIBC = 11
_NOISE = (".lock", "bin", f"**/{COMPILED}", "**/*.pyi", "**/tests")
_NOISE_OF_INSTALLERS = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "WHEEL", "top_level.txt")


def require_installer() -> None:
    """Make sure that libraries can be installed.

    Raises:
        HostError: `extra_missing`: uv, which installs them, is not there.
    """
    if find_spec("uv") is None:
        raise HostError("a bundle needs the extra: pip install 'iii-runtime[cdk]'", code="extra_missing")


def require_libraries(project: Project, folder: Path, architecture: str, python: str, *, tracing: bool) -> Path:
    """Return the folder of the libraries, without touching the network.

    Raises:
        HostError: `bundle_missing`: they are not installed, the requirements have changed since, or a file of them has.
    """
    place = _place(folder, architecture, python)
    if not _is_installed(place, _inputs(project, architecture, python, tracing=tracing)):
        raise HostError(
            f"{place.parent / f'{architecture}-{python}'}: there is no bundle yet, or its libraries have changed. Run "
            f"`{_command(project)}` in the root of the project.",
            code="bundle_missing",
        )
    return place


def ensure_libraries(project: Project, folder: Path, architecture: str, python: str, *, tracing: bool) -> Path:
    """Return the folder of the libraries, installed first if they are not those that are required.

    Raises:
        HostError: `libraries_unavailable`: see the message, which is uv's.
    """
    place = _place(folder, architecture, python)
    inputs = _inputs(project, architecture, python, tracing=tracing)
    if _is_installed(place, inputs):
        return place
    fresh = place.with_name(f"{place.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    lock = fresh / _LOCK
    platform = _platform(architecture, python)
    _resolve(project, lock, platform, tracing=tracing)
    _install(lock, packages_in(fresh), platform)
    _prune(packages_in(fresh))
    mark_installed(fresh, inputs)
    shutil.rmtree(place, ignore_errors=True)
    fresh.rename(place)
    return place


def packages_in(libraries: Path) -> Path:
    """Return the folder with the packages themselves."""
    return libraries / "python"


def mark_installed(libraries: Path, inputs: Sequence[str]) -> None:
    """Note in the folder of libraries what they were installed for, and what they are."""
    (libraries / _MARK).write_text(_mark_of(libraries, inputs), "ascii")


def _command(project: Project) -> str:
    """Return what builds the bundle of a project, without what is so by default."""
    words = ["iii-runtime", "bundle"]
    if project.config not in {None, CONFIG}:
        words += ["--config", str(project.config)]
    if project.requirements is not None:
        words += ["--requirements", project.requirements]
    return shlex.join([*words, *(() if project.functions == ("functions",) else project.functions)])


def _place(folder: Path, architecture: str, python: str) -> Path:
    return folder / f"libraries-{architecture}-{python}"


def _is_installed(place: Path, inputs: Sequence[str]) -> bool:
    marker = place / _MARK
    return marker.is_file() and marker.read_text("ascii") == _mark_of(place, inputs)


def _mark_of(libraries: Path, inputs: Sequence[str]) -> str:
    """Return what tells whether libraries are those of some inputs, just as they were installed."""
    packages = digest_of(files_below(packages_in(libraries)))
    return hashlib.sha256("\n".join([*inputs, packages]).encode()).hexdigest()


def _inputs(project: Project, architecture: str, python: str, *, tracing: bool) -> list[str]:
    """Return everything that decides which libraries there are."""
    files = [file.read_text("utf-8") for file in (project.requirements_file(), _constraints(project)) if file]
    return [*_own_requirements(tracing=tracing), architecture, python, *files]


def _own_requirements(*, tracing: bool) -> list[str]:
    ranges = _ranges()
    names = (*RUNTIME_LIBRARIES, *(TRACING_LIBRARIES if tracing else ()))
    return [*(name + ranges.get(name, "") for name in names), *PROVIDED[:1]]


def _constraints(project: Project) -> Path | None:
    path = project.root / CONSTRAINTS
    return path if path.is_file() else None


def _ranges() -> dict[str, str]:
    """Return the range of versions of each library that the runtime's package asks for."""
    found: dict[str, str] = {}
    for requirement in metadata.requires(_DISTRIBUTION) or ():
        parts = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*\(?([^;()]*)", requirement)
        if parts is not None:
            found[parts[1].lower()] = parts[2].strip()
    return found


def _resolve(project: Project, lock: Path, platform: Sequence[str], *, tracing: bool) -> None:
    own = lock.with_name("requirements.in")
    own.write_text("\n".join([*_own_requirements(tracing=tracing), ""]), "utf-8")
    requirements = [str(file) for file in (own, project.requirements_file()) if file]
    constraints = _constraints(project)
    pinned = ["--constraint", str(constraints)] if constraints else []
    left_out = [argument for name in PROVIDED for argument in ("--no-emit-package", name)]
    _uv(
        ["compile", *requirements, "--output-file", str(lock), "--generate-hashes", "--no-header", "--no-annotate"],
        [*pinned, *left_out, *platform],
    )


def _install(lock: Path, target: Path, platform: Sequence[str]) -> None:
    _uv(
        ["install", "--no-deps", "--require-hashes", "--requirement", str(lock), "--target", str(target)],
        ["--no-compile-bytecode", "--link-mode", "copy", *platform],
    )


def _platform(architecture: str, python: str) -> list[str]:
    # Up to Python 3.11 Lambda runs on Amazon Linux 2, whose glibc is 2.26; from 3.12 on it is 2.34.
    is_old = int(python.partition(".")[2]) <= _LAST_WITH_OLD_GLIBC
    machine = {"arm64": "aarch64"}.get(architecture, architecture)
    platform = f"{machine}-{'manylinux2014' if is_old else 'manylinux_2_28'}"
    return ["--python-version", python, "--python-platform", platform, "--only-binary", ":all:"]


def _uv(command: Sequence[str], options: Sequence[str]) -> None:
    done = subprocess.run(  # noqa: S603 - our own interpreter and arguments
        [sys.executable, "-P", "-m", "uv", "pip", *command, *options, "--quiet"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise HostError(
            "the libraries of the bundle cannot be installed. They come from the package index, and all have to be "
            f"there as wheels for Lambda.\n{done.stderr.strip()}",
            code="libraries_unavailable",
        )


def _prune(packages: Path) -> None:
    """Remove what no Lambda needs, and what differs from one installation to the next."""
    for pattern in _NOISE:
        for path in list(packages.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    for record in packages.glob("*.dist-info/*"):
        if record.name in _NOISE_OF_INSTALLERS:
            record.unlink()
