"""`state` and `stream` without a host: the commands open the store themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.host.commands import answer, done, refused, run

pytestmark = pytest.mark.usefixtures("own_folder")


class TestState:
    def test_a_value_goes_through_its_life(self) -> None:
        assert answer("state", "set", "orders", "1", '{"n": 1}') == {"old_value": None, "new_value": {"n": 1}}
        assert answer("state", "get", "orders", "1") == {"n": 1}
        assert answer("state", "list", "orders") == [{"n": 1}]
        assert answer("state", "scopes") == {"groups": ["orders"]}
        assert answer("state", "delete", "orders", "1") == {"n": 1}
        assert answer("state", "get", "orders", "1") is None

    def test_the_data_directory_is_taken_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("III_DATA", "elsewhere")
        assert "no store in elsewhere yet" in run("state", "set", "s", "k", "1").stderr
        assert Path("elsewhere", "iii.db").exists()
        assert not Path("data").exists()

    def test_a_directory_that_cannot_be_used_is_exit_code_2(self) -> None:
        Path("file").write_text("")
        assert "error: store_unavailable: " in refused(2, "state", "scopes", "--data", "file/data")

    def test_broken_configuration_is_one_block_and_exit_code_2(self) -> None:
        Path("iii-config.yaml").write_text("workers: 1\nother: 2\n")
        told = refused(2, "state", "scopes")
        assert "error: config_invalid: iii-config.yaml:1" in told
        assert "Traceback" not in told


class TestStream:
    def test_items_and_groups_are_listed(self) -> None:
        item = '{"stream_name": "s", "group_id": "g", "item_id": "i", "data": {"x": 1}}'
        done("trigger", "stream::set", "--payload", item)
        assert answer("stream", "list", "s", "g") == [{"x": 1}]
        assert answer("stream", "list", "s") == ["g"]

    def test_watching_needs_a_host(self) -> None:
        assert "`iii-runtime dev`" in refused(2, "stream", "watch", "s", "g")
