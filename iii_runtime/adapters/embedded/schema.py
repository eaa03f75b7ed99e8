"""The tables of the embedded store."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from iii_runtime.adapters.embedded.store_errors import not_ours
from iii_runtime.core.errors import StoreError

SCHEMA_VERSION = 1
"""Version of the tables, kept in `PRAGMA user_version`. A file of a higher version is not opened."""

# visible_at: when the message is receivable, or its lease (held = 1) ends; NULL while it waits behind another message
# of its group, so that the due messages of a queue are one range of q_msg_due however many wait behind them.
# ready_at: when it becomes receivable at the earliest, once it leads its group.
# rc: how often it was received, which only grows, for it names the receive that holds the message. uncounted: how many
# of these receives gave it back as if they had not been.
_DDL = """
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


def check_version(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the tables exist; the file is not changed.

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
    return version == SCHEMA_VERSION


def create_tables(connection: sqlite3.Connection) -> None:
    """Create all tables, inside the caller's transaction."""
    for statement in filter(str.strip, _DDL.split(";\n")):
        connection.execute(statement)
    connection.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
