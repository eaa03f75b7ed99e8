"""The tables of the embedded store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from iii_runtime.adapters.embedded.store_errors import not_ours
from iii_runtime.core.errors import StoreError

SCHEMA_VERSION = 2
"""Version of the tables, kept in `PRAGMA user_version`. A file of a higher version is not opened, one of a
lower version is brought up to this one."""

# visible_at: when the message is receivable, or its lease (held = 1) ends; NULL while it waits behind another message
# of its group, so that the due messages of a queue are one range of q_msg_due however many wait behind them.
# ready_at: when it becomes receivable at the earliest, once it leads its group.
# rc: how often it was received, which only grows, for it names the receive that holds the message. uncounted: how many
# of these receives gave it back as if they had not been.
_VERSION_1 = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE q_msg (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  queue TEXT NOT NULL, grp TEXT, receipt TEXT NOT NULL,
  g INTEGER NOT NULL, visible_at INTEGER, ready_at INTEGER NOT NULL, first_ms INTEGER NOT NULL,
  held INTEGER NOT NULL DEFAULT 0, rc INTEGER NOT NULL DEFAULT 0, uncounted INTEGER NOT NULL DEFAULT 0,
  n INTEGER NOT NULL DEFAULT 0, errors TEXT,
  blob TEXT, body TEXT NOT NULL
);
CREATE INDEX q_msg_due ON q_msg (queue, visible_at);
CREATE INDEX q_msg_group ON q_msg (queue, grp) WHERE grp IS NOT NULL;
CREATE INDEX q_msg_held ON q_msg (held, queue, visible_at) WHERE held = 1;
CREATE INDEX q_msg_blob ON q_msg (blob) WHERE blob IS NOT NULL;

CREATE TABLE q_letter (
  died INTEGER PRIMARY KEY AUTOINCREMENT,
  queue TEXT NOT NULL, receipt TEXT NOT NULL UNIQUE, fn TEXT,
  g INTEGER NOT NULL, cause TEXT NOT NULL, error TEXT NOT NULL, errors TEXT,
  attempts INTEGER NOT NULL, receives INTEGER NOT NULL, first_ms INTEGER NOT NULL, failed_ms INTEGER NOT NULL,
  size INTEGER NOT NULL, blob TEXT, body TEXT NOT NULL
);
CREATE INDEX q_letter_queue ON q_letter (queue);
CREATE INDEX q_letter_age ON q_letter (failed_ms);
CREATE INDEX q_letter_blob ON q_letter (blob) WHERE blob IS NOT NULL;

CREATE TABLE q_grouping (queue TEXT PRIMARY KEY, grouping TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE dedupe (
  queue TEXT NOT NULL, fn TEXT NOT NULL, id TEXT NOT NULL, receipt TEXT NOT NULL, at_ms INTEGER NOT NULL,
  PRIMARY KEY (queue, fn, id)
) WITHOUT ROWID;
CREATE INDEX dedupe_age ON dedupe (at_ms);

CREATE TABLE state (
  scope TEXT NOT NULL, key TEXT NOT NULL, written_ms INTEGER NOT NULL, value TEXT, blob TEXT,
  PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX state_blob ON state (blob) WHERE blob IS NOT NULL;

CREATE TABLE stream (
  stream TEXT NOT NULL, grp TEXT NOT NULL, item TEXT NOT NULL, written_ms INTEGER NOT NULL, value TEXT, blob TEXT,
  PRIMARY KEY (stream, grp, item)
) WITHOUT ROWID;
CREATE INDEX stream_age ON stream (written_ms);
CREATE INDEX stream_blob ON stream (blob) WHERE blob IS NOT NULL;

CREATE TABLE feed (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  change TEXT NOT NULL, old_value TEXT, old_blob TEXT, value TEXT, blob TEXT
);
CREATE INDEX feed_old_blob ON feed (old_blob) WHERE old_blob IS NOT NULL;
CREATE INDEX feed_blob ON feed (blob) WHERE blob IS NOT NULL;

CREATE TABLE response (
  key TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, holder TEXT NOT NULL, begun_ms INTEGER NOT NULL,
  status INTEGER, headers TEXT, body BLOB, blob TEXT
) WITHOUT ROWID;
CREATE INDEX response_age ON response (begun_ms);
CREATE INDEX response_blob ON response (blob) WHERE blob IS NOT NULL;

CREATE TABLE tick (job TEXT PRIMARY KEY, nominal_ms INTEGER NOT NULL) WITHOUT ROWID;
"""

_RUN_COLUMNS = """
  run_id TEXT NOT NULL, first_run_id TEXT NOT NULL, workflow TEXT NOT NULL, version TEXT NOT NULL, input TEXT NOT NULL,
  created_ms INTEGER NOT NULL, deadline_ms INTEGER, start_at_ms INTEGER, traceparent TEXT,
  epoch INTEGER NOT NULL, owner TEXT, lease_until_ms INTEGER, wake_at_ms INTEGER, inbox TEXT,
  sequence INTEGER NOT NULL, cancel_requested_ms INTEGER, acquisitions INTEGER NOT NULL, parked TEXT,
  duties TEXT, due_ms INTEGER, status TEXT NOT NULL, outcome TEXT, closed_ms INTEGER"""

# run: the current run of each workflow id. run_history: the earlier ones. run_fact: the journals of both.
# due_ms: when somebody has to look at the run, see `core.runs.transitions.due_ms`.
_VERSION_2 = f"""
CREATE TABLE run (workflow_id TEXT NOT NULL, {_RUN_COLUMNS}, PRIMARY KEY (workflow_id)) WITHOUT ROWID;
CREATE INDEX run_due ON run (due_ms) WHERE due_ms IS NOT NULL;
CREATE INDEX run_age ON run (created_ms);
CREATE INDEX run_workflow ON run (workflow, created_ms);
CREATE INDEX run_status ON run (status, created_ms);
CREATE INDEX run_closed ON run (closed_ms) WHERE closed_ms IS NOT NULL;

CREATE TABLE run_history (
  workflow_id TEXT NOT NULL, {_RUN_COLUMNS}, PRIMARY KEY (workflow_id, run_id)
) WITHOUT ROWID;
CREATE INDEX run_history_age ON run_history (created_ms);
CREATE INDEX run_history_workflow ON run_history (workflow, created_ms);
CREATE INDEX run_history_status ON run_history (status, created_ms);
CREATE INDEX run_history_closed ON run_history (closed_ms);

CREATE TABLE run_fact (
  workflow_id TEXT NOT NULL, run_id TEXT NOT NULL, number INTEGER NOT NULL, fact TEXT NOT NULL,
  PRIMARY KEY (workflow_id, run_id, number)
) WITHOUT ROWID;

CREATE TABLE run_payload (
  workflow_id TEXT NOT NULL, name TEXT NOT NULL, written_ms INTEGER NOT NULL, text TEXT, blob TEXT,
  PRIMARY KEY (workflow_id, name)
) WITHOUT ROWID;
CREATE INDEX run_payload_age ON run_payload (written_ms);
CREATE INDEX run_payload_blob ON run_payload (blob) WHERE blob IS NOT NULL;
"""

_STEPS = (_VERSION_1, _VERSION_2)
"""What each version adds to the one before."""


def check_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the tables, 0 if there are none; the file is not changed.

    Raises:
        StoreError: `store_newer_schema`, or `store_corrupt` if the file is another program's database.
        sqlite3.Error: The file cannot be read, or is no database.
    """
    version: int
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer iii_runtime: its schema has version {version}, this one knows "
            f"{SCHEMA_VERSION}. Upgrade iii_runtime, or choose another --data; the file was not changed.",
            code="store_newer_schema",
        )
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and version == 0:
        raise not_ours(path, "the file is a database of another program")
    return version


def upgrade_tables(connection: sqlite3.Connection, version: int, to_version: int = SCHEMA_VERSION) -> None:
    """Create what the tables of `version` lack, inside the caller's transaction. What is stored stays as it is."""
    for step in _STEPS[version:to_version]:
        for statement in filter(str.strip, step.split(";\n")):
            connection.execute(statement)
    connection.execute("REPLACE INTO meta VALUES ('schema_version', ?)", (str(to_version),))
    connection.execute(f"PRAGMA user_version = {to_version}")
