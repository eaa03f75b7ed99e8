"""The emulator itself: on this machine alone, and gone when it should be."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.e2e.emulator import ACCOUNT, Emulator
from tests.patience import eventually


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
    # All are killed at once; its socket is closed when its process has come to its end, which nobody can wait for.
    eventually(lambda: not _answers(port), "the port to be free", within_s=10)


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
