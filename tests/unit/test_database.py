"""The writer thread, group commit, and what a bad file or a full disk does."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest

from iii_runtime.adapters.embedded.database import Database
from iii_runtime.adapters.embedded.schema import SCHEMA_VERSION, upgrade_tables
from iii_runtime.core.errors import StoreError

Op = Callable[[sqlite3.Connection], object]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database.open(tmp_path / "iii.db", synchronous="OFF")
    yield opened
    await opened.close()


def put(key: str, value: str = "1") -> Op:
    return lambda connection: connection.execute("INSERT INTO state VALUES ('s', ?, 0, ?, NULL)", (key, value))


def stored(connection: sqlite3.Connection) -> list[str]:
    return [key for (key,) in connection.execute("SELECT key FROM state ORDER BY key")]


class TestGroupCommit:
    async def test_simultaneous_writes_share_commits(self, database: Database) -> None:
        before = database.commits
        gate = Event()
        blocker = asyncio.create_task(database.write(lambda _: gate.wait(10)))
        writes = [asyncio.create_task(database.write(put(f"{number:03}"))) for number in range(100)]
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(blocker, *writes)
        assert database.commits - before <= 2
        assert len(await database.read(stored)) == 100

    async def test_an_operation_that_fails_undoes_itself_alone(self, database: Database) -> None:
        def fails_late(connection: sqlite3.Connection) -> None:
            put("half")(connection)
            raise LookupError("no")

        gate = Event()
        blocker = asyncio.create_task(database.write(lambda _: gate.wait(10)))
        tasks = [asyncio.create_task(database.write(op)) for op in (put("a"), fails_late, put("a"), put("b"))]
        await asyncio.sleep(0)
        gate.set()
        await blocker
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result).__name__ for result in results] == ["Cursor", "LookupError", "IntegrityError", "Cursor"]
        assert await database.read(stored) == ["a", "b"]

    async def test_operations_run_in_the_order_of_their_calls(self, database: Database) -> None:
        order: list[int] = []
        await asyncio.gather(*[database.write(lambda _, number=number: order.append(number)) for number in range(50)])  # type: ignore[misc]
        assert order == list(range(50))

    async def test_a_transaction_that_sqlite_ends_fails_only_its_cause(self, database: Database) -> None:
        """SQLite may roll back everything when one statement fails; the neighbours run again and are stored."""

        def ends_the_transaction(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR ROLLBACK INTO state VALUES ('s', 'a', 0, '1', NULL)")

        gate = Event()
        blocker = asyncio.create_task(database.write(lambda _: gate.wait(10)))
        tasks = [asyncio.create_task(database.write(op)) for op in (put("a"), put("b"), ends_the_transaction, put("c"))]
        await asyncio.sleep(0)
        gate.set()
        await blocker
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(result).__name__ for result in results] == ["Cursor", "Cursor", "IntegrityError", "Cursor"]
        assert await database.read(stored) == ["a", "b", "c"]

    async def test_what_is_reported_done_is_committed(self, database: Database, tmp_path: Path) -> None:
        seen: list[list[str]] = []
        second = sqlite3.connect(tmp_path / "iii.db")
        for number in range(5):
            await database.write(put(f"{number}"))
            seen.append(stored(second))
        second.close()
        assert [len(keys) for keys in seen] == [1, 2, 3, 4, 5]


class TestCallers:
    async def test_a_cancelled_caller_harms_nobody(self, database: Database) -> None:
        """Its operation is still applied, and the listener still hears of it."""
        heard: list[str] = []
        gate = Event()
        blocker = asyncio.create_task(database.write(lambda _: gate.wait(10)))
        cancelled = asyncio.create_task(database.write(put("a"), lambda _: heard.append("a")))
        other = asyncio.create_task(database.write(put("b"), lambda _: heard.append("b")))
        await asyncio.sleep(0)
        cancelled.cancel()
        gate.set()
        await asyncio.gather(blocker, other)
        assert cancelled.cancelled()
        await database.write(put("c"))
        assert await database.read(stored) == ["a", "b", "c"]
        assert heard == ["a", "b"]

    async def test_a_failed_operation_is_not_announced(self, database: Database) -> None:
        heard: list[object] = []
        await database.write(put("a"), heard.append)
        with pytest.raises(sqlite3.IntegrityError):
            await database.write(put("a"), heard.append)
        await asyncio.sleep(0)
        assert len(heard) == 1

    async def test_a_read_is_one_snapshot(self, database: Database) -> None:
        await database.write(put("a"))
        started, gate = Event(), Event()

        def twice(connection: sqlite3.Connection) -> tuple[list[str], list[str]]:
            first = stored(connection)
            started.set()
            gate.wait(10)
            return first, stored(connection)

        reading = asyncio.create_task(database.read(twice))
        await asyncio.to_thread(started.wait, 10)
        await database.write(put("b"))
        gate.set()
        assert await reading == (["a"], ["a"])
        assert await database.read(stored) == ["a", "b"]

    async def test_a_read_cannot_write(self, database: Database) -> None:
        with pytest.raises(StoreError, match="readonly"):
            await database.read(put("a"))
        assert await database.read(stored) == []

    async def test_a_mistake_in_an_operation_is_not_a_store_error(self, database: Database) -> None:
        for run in (database.read, database.write):
            with pytest.raises(sqlite3.OperationalError, match="no such table"):
                await run(lambda connection: connection.execute("SELECT * FROM missing_table"))

    def test_callers_on_several_loops_share_one_database(self, tmp_path: Path) -> None:
        database = Database.open(tmp_path / "iii.db", synchronous="OFF")
        asyncio.run(_write(database, "a"))
        asyncio.run(_write(database, "b"))
        assert asyncio.run(database.read(stored)) == ["a", "b"]
        asyncio.run(database.close())


class TestClose:
    async def test_closing_finishes_what_was_submitted(self, tmp_path: Path) -> None:
        database = Database.open(tmp_path / "iii.db")
        writes = [asyncio.create_task(database.write(put(f"{number}"))) for number in range(20)]
        await asyncio.sleep(0)
        await database.close()
        await asyncio.gather(*writes)
        await database.close()
        assert _names(tmp_path) == ["iii.db"]
        again = Database.open(tmp_path / "iii.db")
        assert len(await again.read(stored)) == 20
        await again.close()

    async def test_a_closed_database_refuses(self, tmp_path: Path) -> None:
        database = Database.open(tmp_path / "iii.db")
        await database.close()
        with pytest.raises(StoreError, match="is closed"):
            await database.write(put("a"))
        with pytest.raises(StoreError, match="is closed"):
            await database.read(stored)


class TestFull:
    async def test_a_full_store_refuses_writes_answers_reads_and_recovers(self, tmp_path: Path) -> None:
        database = Database.open(tmp_path / "iii.db", synchronous="OFF", max_page_count=200)
        keys = [f"{number:03}" for number in range(200)]
        with pytest.raises(StoreError, match=r"iii\.db.*Free space") as caught:
            await _write_all(database, keys)
        assert caught.value.code == "store_full"
        done = await database.read(stored)
        assert 10 < len(done) < 200
        assert done == keys[: len(done)]
        await database.write(lambda connection: connection.execute("DELETE FROM state WHERE key < '010'"))
        await database.write(put("new", "x" * 10_000))
        assert "new" in await database.read(stored)
        await database.close()

    async def test_each_of_simultaneous_writes_is_stored_or_fails(self, tmp_path: Path) -> None:
        database = Database.open(tmp_path / "iii.db", synchronous="OFF", max_page_count=200)
        keys = [f"{number:03}" for number in range(100)]
        results = await asyncio.gather(
            *[database.write(put(key, "x" * 10_000)) for key in keys], return_exceptions=True
        )
        done = [key for key, result in zip(keys, results, strict=True) if not isinstance(result, BaseException)]
        assert {result.code for result in results if isinstance(result, StoreError)} == {"store_full"}
        assert 10 < len(done) < 100
        assert await database.read(stored) == done
        await database.close()


class TestOpen:
    async def test_the_settings_of_the_file(self, tmp_path: Path) -> None:
        database = Database.open(tmp_path / "deep" / "er" / "iii.db")
        assert database.synchronous == "FULL"
        assert await _pragmas(database, "synchronous", "journal_mode", "auto_vacuum") == [2, "wal", 2]
        await database.close()
        again = Database.open(database.path, synchronous="NORMAL")
        assert again.synchronous == "NORMAL"
        assert await _pragmas(again, "synchronous", "journal_mode", "auto_vacuum", "user_version") == [
            1,
            "wal",
            2,
            SCHEMA_VERSION,
        ]
        await again.close()

    def test_a_file_of_a_newer_version_is_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "iii.db"
        with sqlite3.connect(path) as connection:
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 6}")
        connection.close()
        before = path.read_bytes()
        error = _refused(path)
        assert error.code == "store_newer_schema"
        for part in (str(path), f"version {SCHEMA_VERSION + 6}", f"knows {SCHEMA_VERSION}", "Upgrade"):
            assert part in error.message
        assert path.read_bytes() == before

    async def test_a_file_of_an_older_version_is_brought_up_to_date_with_all_that_is_in_it(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "iii.db"
        with sqlite3.connect(path) as connection:
            upgrade_tables(connection, 0, to_version=1)
            connection.execute("INSERT INTO state VALUES ('s', 'k', 1, '17', NULL)")
        connection.close()
        database = Database.open(path)
        assert await _pragmas(database, "user_version") == [SCHEMA_VERSION]
        assert await database.read(lambda reader: reader.execute("SELECT value FROM state").fetchall()) == [("17",)]
        assert await database.read(lambda reader: reader.execute("SELECT count(*) FROM run").fetchall()) == [(0,)]
        found = await database.read(_tables)
        await database.close()
        fresh = Database.open(tmp_path / "fresh.db")
        assert await fresh.read(_tables) == found
        await fresh.close()

    @pytest.mark.parametrize("content", [b"not a database, but long enough to be one" * 30, b"\0" * 2000])
    def test_a_file_that_is_no_database(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "iii.db"
        path.write_bytes(content)
        error = _refused(path)
        assert error.code == "store_corrupt"
        assert str(path) in error.message
        assert path.read_bytes() == content

    def test_a_database_of_another_program(self, tmp_path: Path) -> None:
        path = tmp_path / "iii.db"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE photos (id)")
        connection.close()
        error = _refused(path)
        assert error.code == "store_corrupt"
        assert "another program" in error.message

    def test_a_path_below_a_regular_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for path in (tmp_path / "file" / "iii.db", tmp_path / "file" / "deeper" / "iii.db"):
            error = _refused(path)
            assert error.code == "store_unavailable"
            assert str(path) in error.message

    def test_a_directory_in_place_of_the_file(self, tmp_path: Path) -> None:
        assert _refused(tmp_path).code == "store_unavailable"

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_directory_that_cannot_be_written(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o500)
        assert _refused(tmp_path / "iii.db").code == "store_unavailable"

    async def test_a_file_that_another_program_has_locked(self, tmp_path: Path) -> None:
        database = Database.open(tmp_path / "iii.db", busy_timeout=timedelta(milliseconds=10))
        browser = sqlite3.connect(tmp_path / "iii.db", isolation_level=None)
        browser.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another program") as caught:
            await database.write(put("a"))
        assert caught.value.code == "store_locked"
        with pytest.raises(StoreError, match="another program"):
            Database.open(tmp_path / "iii.db", busy_timeout=timedelta(milliseconds=10))
        browser.execute("ROLLBACK")
        browser.close()
        await database.write(put("a"))
        assert await database.read(stored) == ["a"]
        await database.close()


async def _write(database: Database, key: str) -> None:
    await database.write(put(key))


async def _write_all(database: Database, keys: list[str]) -> None:
    for key in keys:
        await database.write(put(key, "x" * 10_000))


async def _pragmas(database: Database, *names: str) -> list[object]:
    return [
        await database.write(lambda connection, name=name: connection.execute(f"PRAGMA {name}").fetchone()[0])  # type: ignore[misc]
        for name in names
    ]


def _names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


def _refused(path: Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        Database.open(path)
    return caught.value


def _tables(reader: sqlite3.Connection) -> list[tuple[str, str]]:
    rows = reader.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    return [*rows, *reader.execute("SELECT name, value FROM meta").fetchall()]
