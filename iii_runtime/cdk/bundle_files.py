"""The files of a bundle: which they are, how they get there, how large they are."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import iii_runtime
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

_IGNORED = ("__pycache__", ".DS_Store")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LARGEST = 5


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
    shutil.copytree(packages_in(libraries), fresh)
    for name, source in _sources(discovered, project).items():
        if (fresh / name).exists():
            raise HostError(
                f"{source}: a library of the bundle has the name '{name}' too; rename one.", code="bundle_name_taken"
            )
        (fresh / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, fresh / name)
    (fresh / MANIFEST_NAME).write_bytes(_manifest(discovered))
    for path in fresh.rglob("*"):
        # Lambda runs as another user: what only its owner may read would not be read there.
        path.chmod(0o755 if path.is_dir() else 0o644)
    shutil.rmtree(target, ignore_errors=True)
    return fresh.rename(target)


def is_assembled(discovered: DiscoveredApp, project: Project, libraries: Path, target: Path) -> bool:
    """Return whether a bundle is what `assemble` would make."""
    if not target.is_dir():
        return False
    packages = packages_in(libraries)
    expected = {path.relative_to(packages).as_posix(): path for path in _files(packages)}
    expected.update(_sources(discovered, project))
    found = {path.relative_to(target).as_posix(): path for path in _files(target)}
    manifest = found.pop(MANIFEST_NAME, None)
    return (
        manifest is not None
        and manifest.read_bytes() == _manifest(discovered)
        and found.keys() == expected.keys()
        and all(path.read_bytes() == expected[name].read_bytes() for name, path in found.items())
    )


def measure(bundle: Path) -> Size:
    """Return what a bundle weighs."""
    digest = hashlib.sha256()
    parts: Counter[str] = Counter()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(_files(bundle), key=lambda file: file.relative_to(bundle).as_posix()):
            name, content = path.relative_to(bundle), path.read_bytes()
            digest.update(f"{name.as_posix()}\0{len(content)}\0".encode())
            digest.update(content)
            parts[name.parts[0]] += len(content)
            packed.writestr(zipfile.ZipInfo(name.as_posix(), _EPOCH), content, zipfile.ZIP_DEFLATED)
    return Size(
        digest=digest.hexdigest(),
        unpacked_bytes=parts.total(),
        zip_bytes=archive.tell(),
        largest=tuple(parts.most_common(_LARGEST)),
    )


def _sources(discovered: DiscoveredApp, project: Project) -> dict[str, Path]:
    """Return the files of code and runtime by their names in the bundle."""
    runtime = Path(iii_runtime.__file__).parent
    left_out = [runtime / part for part in LEFT_OUT]
    found = {
        f"iii_runtime/{path.relative_to(runtime).as_posix()}": path
        for path in _files(runtime)
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
    files = [source] if source.is_file() else _files(source)
    return {path.relative_to(root).as_posix(): path for path in files}


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not any(part in _IGNORED for part in path.relative_to(folder).parts):
            yield path


def _manifest(discovered: DiscoveredApp) -> bytes:
    return json.dumps(discovered.manifest, indent=1, ensure_ascii=True).encode("ascii")
