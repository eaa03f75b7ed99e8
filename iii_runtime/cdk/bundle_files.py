"""The files of a bundle: which they are, how they get there, how large they are."""

from __future__ import annotations

import io
import json
import shutil
import stat
import zipfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import iii_runtime
from iii_runtime.cdk.file_tree import digest_of, files_below
from iii_runtime.cdk.libraries import packages_in
from iii_runtime.cdk.project import Project
from iii_runtime.core.errors import HostError
from iii_runtime.hosts.embedded.manifest_discovery import DiscoveredApp
from iii_runtime.plan.manifest import MANIFEST_NAME

LEFT_OUT = (
    "cli",
    "cdk",
    "testing",
    "adapters/config_file.py",
    "adapters/embedded",
    "adapters/memory",
    "hosts/embedded",
    "hosts/memory.py",
)
"""Parts of the runtime that no Lambda loads."""

_EPOCH = (1980, 1, 1, 0, 0, 0)
_LARGEST = 5
# Lambda runs as another user: what only its owner may read would not be read there.
_FILE_MODE, _FOLDER_MODE = 0o644, 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a bundle weighs.

    Attributes:
        digest: SHA-256 over names and contents of the files.
        unpacked_bytes: Their size.
        zip_bytes: Size of a zip archive of them.
        largest: The largest members of the root, with their bytes.
    """

    digest: str
    unpacked_bytes: int
    zip_bytes: int
    largest: tuple[tuple[str, int], ...]


def assemble(discovered: DiscoveredApp, project: Project, libraries: Path, target: Path) -> Path:
    """Make `target` a bundle of exactly the present code, runtime and libraries, and return it.

    Raises:
        HostError: `include_missing`; `bundle_name_taken`: code and a library have the same name.
    """
    fresh = target.with_name(f".{target.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for name, source in _parts(discovered, project, libraries).items():
        (fresh / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, fresh / name)
    (fresh / MANIFEST_NAME).write_bytes(_manifest(discovered))
    for path in (fresh, *fresh.rglob("*")):
        path.chmod(_FOLDER_MODE if path.is_dir() else _FILE_MODE)
    shutil.rmtree(target, ignore_errors=True)
    return fresh.rename(target)


def is_assembled(discovered: DiscoveredApp, project: Project, libraries: Path, target: Path) -> bool:
    """Return whether a bundle is what `assemble` would make: to the last file, folder and permission.

    Raises:
        HostError: As `assemble`.
    """
    if not target.is_dir():
        return False
    parts = _parts(discovered, project, libraries)
    folders = {parent.as_posix() for name in (*parts, MANIFEST_NAME) for parent in PurePosixPath(name).parents}
    # All that is there and not only what a bundle has: whatever lies in the folder is deployed.
    found = {path.relative_to(target).as_posix(): path.lstat().st_mode for path in (target, *target.rglob("*"))}
    expected = dict.fromkeys(folders, stat.S_IFDIR | _FOLDER_MODE)
    expected |= dict.fromkeys((*parts, MANIFEST_NAME), stat.S_IFREG | _FILE_MODE)
    return (
        found == expected
        and (target / MANIFEST_NAME).read_bytes() == _manifest(discovered)
        and all((target / name).read_bytes() == source.read_bytes() for name, source in parts.items())
    )


def measure(bundle: Path) -> Size:
    """Return what a bundle weighs."""
    files = files_below(bundle)
    parts: Counter[str] = Counter()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, path in files.items():
            content = path.read_bytes()
            parts[name.partition("/")[0]] += len(content)
            packed.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED)
    return Size(
        digest=digest_of(files),
        unpacked_bytes=parts.total(),
        zip_bytes=archive.tell(),
        largest=tuple(parts.most_common(_LARGEST)),
    )


def _parts(discovered: DiscoveredApp, project: Project, libraries: Path) -> dict[str, Path]:
    """Return every file of a bundle but the manifest, by its name there."""
    packages, sources = files_below(packages_in(libraries)), _sources(discovered, project)
    if taken := sorted(packages.keys() & sources.keys()):
        name = taken[0]
        raise HostError(
            f"{sources[name]}: a library of the bundle has the name '{name}' too; rename one.", code="bundle_name_taken"
        )
    return packages | sources


def _sources(discovered: DiscoveredApp, project: Project) -> dict[str, Path]:
    """Return the files of code and runtime by their names in the bundle."""
    runtime = Path(iii_runtime.__file__).parent
    left_out = [runtime / part for part in LEFT_OUT]
    found = {
        name: path
        for name, path in _under(runtime, runtime.parent).items()
        if not any(path == part or part in path.parents for part in left_out)
    }
    for source in discovered.code.values():
        found.update(_under(source, source.parent))
    for name in project.include:
        source = (project.root / name).resolve()
        if not source.exists():
            raise HostError(f"{source}: no such file or folder to include.", code="include_missing")
        found.update(_under(source, project.root.resolve()))
    return found


def _under(source: Path, root: Path) -> dict[str, Path]:
    """Return a file, or the files of a folder, by their names from a root.

    What has a name that begins with a dot is left out, unless it is the source itself: caches of tools, which no two
    machines have alike, and secrets.
    """
    if source.is_file():
        return {source.relative_to(root).as_posix(): source}
    shown = (path for name, path in files_below(source).items() if not f"/{name}".count("/."))
    return {path.relative_to(root).as_posix(): path for path in shown}


def _manifest(discovered: DiscoveredApp) -> bytes:
    return json.dumps(discovered.manifest, indent=1, ensure_ascii=True).encode("ascii")
