"""The list of workers (or, in the older form, modules): which section each entry is."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from iii_runtime.core.config.document import KeyPath
from iii_runtime.core.config.findings import Findings
from iii_runtime.core.frozen import frozen

CLASSES: Mapping[str, str] = {
    "modules::api::RestApiModule": "http",
    "modules::stream::StreamModule": "stream",
    "modules::state::StateModule": "state",
    "modules::queue::QueueModule": "queue",
    "modules::pubsub::PubSubModule": "pubsub",
    "modules::cron::CronModule": "cron",
    "modules::observability::OtelModule": "observability",
    "modules::http_functions::HttpFunctionsModule": "http-functions",
    "modules::shell::ExecModule": "exec",
    "modules::bridge_client::BridgeClientModule": "bridge",
    "modules::telemetry::TelemetryModule": "telemetry",
}
"""Sections by their class in the older form."""

WITH_EFFECT = frozenset({"http", "stream", "state", "queue", "cron", "pubsub", "aws"})
WITHOUT_EFFECT = frozenset(
    {"observability", "http-functions", "exec", "bridge", "telemetry", "console", "configuration"}
)


@frozen(kw_only=True)
class Entry:
    """A section of the file that means something here.

    Attributes:
        kind: One of `WITH_EFFECT`.
        path: Of the entry; its settings are at `(*path, "config")`.
        config: The settings, unchecked; an empty mapping if there are none.
    """

    kind: str
    path: KeyPath
    config: object


def read_entries(root: Mapping[str, object], findings: Findings) -> list[Entry]:
    """Return the sections with an effect, and report every other entry."""
    workers, modules = root.get("workers"), root.get("modules")
    if "modules" not in root:
        return _read_list("workers", "name", workers, findings)
    entries = _read_list("modules", "class", modules, findings)
    if isinstance(workers, list) and any(isinstance(item, dict) and "name" in item for item in workers):
        findings.problem(
            ("workers",), "`modules:` and `workers:` with names are two forms of this file; keep one of them"
        )
    else:
        _read_list("workers", "class", workers, findings)
    return entries


def read_named(item: object, path: KeyPath, key: str, findings: Findings) -> tuple[str, object] | None:
    """Return the name and the settings of `{name, config}`, or of `{class, config}` in the older form.

    A mistake is reported and gives None.
    """
    if not isinstance(item, dict):
        findings.mismatch(path, expected=f"a mapping with `{key}` and `config`", found=item)
        return None
    other = "class" if key == "name" else "name"
    if key not in item and other in item:
        findings.problem((*path, other), f"expected `{key}` here, found `{other}` of the other form of this file")
        return None
    name = item.get(key)
    if not isinstance(name, str) or not name:
        findings.mismatch((*path, key), expected="a text that is not empty", found=name)
        return None
    settings = item.get("config")
    return name, {} if settings is None else settings


def refuse_other_keys(item: object, path: KeyPath, key: str, findings: Findings) -> None:
    """Report each key of an entry besides its name and settings."""
    if isinstance(item, dict):
        for extra in item.keys() - {key, "config"}:
            findings.problem((*path, extra), unknown_key(extra, (key, "config")))


def unknown_key(key: str, known: tuple[str, ...]) -> str:
    """Return the message for a key that does not exist."""
    if close := get_close_matches(key, known, n=1):
        return f"unknown key; did you mean `{close[0]}`?"
    return f"unknown key; known here: {', '.join(known) or 'none'}"


def _read_list(field: str, key: str, items: object, findings: Findings) -> list[Entry]:
    if not isinstance(items, list):
        return []  # the check of the top level has reported it
    entries = []
    for index, item in enumerate(items):
        path: KeyPath = (field, index)
        if (named := read_named(item, path, key, findings)) is None:
            continue
        name, config = named
        kind = CLASSES.get(name) if key == "class" else name.removeprefix("iii-").replace("_", "-")
        if kind in WITH_EFFECT:
            refuse_other_keys(item, path, key, findings)
            entries.append(Entry(kind=kind, path=path, config=config))
        elif kind in WITHOUT_EFFECT:
            findings.notice(f"worker_without_effect:{kind}", (*path, key), f"'{name}' has no effect here")
        else:
            findings.notice(f"worker_unknown:{name}", (*path, key), _unknown_worker(name, key))
    return entries


def _unknown_worker(name: str, key: str) -> str:
    known = CLASSES if key == "class" else [f"iii-{kind}" for kind in sorted(WITH_EFFECT | WITHOUT_EFFECT)]
    close = get_close_matches(name, known, n=1, cutoff=0.7)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"'{name}' is not known here and is ignored{hint}"
