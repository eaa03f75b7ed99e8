"""The emulator itself: on this machine alone, and gone when it should be."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.e2e.emulator import ACCOUNT, Emulator


def test_it_answers_on_the_loopback_interface_as_the_account_that_needs_no_signature(emulator: Emulator) -> None:
    assert emulator.client("sts").get_caller_identity()["Account"] == ACCOUNT
    with socket.socket() as other:
        # On Linux all of 127.0.0.0/8 is the loopback interface; who listens to every address answers here too.
        assert other.connect_ex(("127.0.0.2", emulator.port)) != 0


def test_it_ends_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with Emulator(log=tmp_path / "second.log") as second:
        home, port = second.home, second.port
        assert home.is_dir()
    assert not home.exists()
    with socket.socket() as gone:
        assert gone.connect_ex(("127.0.0.1", port)) != 0
