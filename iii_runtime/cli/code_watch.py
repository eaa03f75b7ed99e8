"""Notices changed code: the Python files of the workers, and the configuration file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from iii_runtime.cli.output import say
from iii_runtime.cli.place import DEFAULT_CONFIG

_QUIET_MS = 50
"""A change counts once nothing more has happened for so long: an editor writes in several steps."""
_LONGEST_WAIT_MS = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is looked at, all of it absolute.

    Attributes:
        trees: Folders whose Python files count, at any depth.
        folders: Folders whose own Python files count.
        config: The configuration file; it need not exist yet.
    """

    trees: frozenset[Path]
    folders: frozenset[Path]
    config: Path

    def counts(self, path: Path) -> bool:
        """Whether a change of the file means that the host has to be started anew."""
        return path == self.config or (path.suffix == ".py" and not path.name.startswith("."))


def watched_files(targets: Sequence[str], config: Path | None) -> Watched:
    """Return what has to be watched for these workers.

    Args:
        targets: As for `discover_workers`: a package with all its modules, a file with its neighbours.
        config: The configuration file; None for the default one, should it appear.
    """
    trees: set[Path] = set()
    folders: set[Path] = set()
    for target in targets:
        path = Path(target)
        if path.is_dir():
            trees.add(path.resolve())
        elif path.suffix == ".py":
            folders.add(path.resolve().parent)
        else:
            trees.update(_module_folders(target))
    file = config or Path(DEFAULT_CONFIG)
    return Watched(trees=frozenset(trees), folders=frozenset(folders), config=file.parent.resolve() / file.name)


@asynccontextmanager
async def watching(watched: Watched) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set after each change, until the block ends."""
    changed = asyncio.Event()
    # Only what is named is followed deeply: the folder of a file may hold a whole environment, and the data directory.
    shallow = {path for path in watched.folders | {watched.config.parent} if path.is_dir()}
    tasks = [
        asyncio.create_task(_follow(watched, paths, changed, is_deep=is_deep))
        for paths, is_deep in ((watched.trees, True), (shallow, False))
        if paths
    ]
    try:
        yield changed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _follow(
    watched: Watched, paths: set[Path] | frozenset[Path], changed: asyncio.Event, *, is_deep: bool
) -> None:
    # Here because a host without reload does without it.
    from watchfiles import awatch  # noqa: PLC0415

    try:
        async for _changes in awatch(
            *paths,
            recursive=is_deep,
            watch_filter=lambda _change, path: watched.counts(Path(path)),
            debounce=_LONGEST_WAIT_MS,
            step=_QUIET_MS,
        ):
            changed.set()
    except (OSError, RuntimeError) as error:
        say(f"notice: changes are not noticed any more: {error}. Start again to use changed code.")


def _module_folders(name: str) -> list[Path]:
    top = name.partition(".")[0]
    # The finder imports nothing: what the workers do when they are imported belongs into the host's process.
    spec = PathFinder.find_spec(top, [str(Path.cwd())]) or PathFinder.find_spec(top)
    if spec is None:
        return []
    if spec.submodule_search_locations is not None:
        return [Path(location).resolve() for location in spec.submodule_search_locations]
    return [] if spec.origin is None else [Path(spec.origin).resolve().parent]
