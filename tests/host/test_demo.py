"""The demo as a reader runs it: a process of its own, without a terminal."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.process


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A running demo. Its stderr ends when it, its tether and its commands have all ended."""
    # Tests started in the background of a shell ignore SIGINT, and so would whatever they start.
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "scripts/demo.py"],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "default", "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, earlier)
    yield process
    process.kill()
    process.communicate()


def address_of_host(demo: subprocess.Popen[str]) -> tuple[str, int]:
    """Read on until the demo says where its host listens."""
    assert demo.stdout is not None
    for line in demo.stdout:
        if found := re.search(r"POST http://([\d.]+):(\d+)/orders", line):
            return found[1], int(found[2])
    raise AssertionError(f"the demo ended: {demo.stderr.read() if demo.stderr else ''}")


def data_directory(output: str) -> Path:
    found = re.search(r"export III_DATA=(\S+)", output)
    assert found is not None
    return Path(found[1])


def test_every_order_ends_as_expected_and_the_reader_sees_why(demo: subprocess.Popen[str]) -> None:
    output, complaints = demo.communicate(timeout=90)

    assert complaints == ""
    assert demo.returncode == 0, output
    assert "Every order ended as expected" in output.splitlines()[-1]
    expected_lines = [
        r"ord-payment-flaky +charge-payment +attempt 2 +retrying +the payment provider did not answer",
        r"ord-payment-flaky +fulfilled +create, validate, charge-payment \(3 attempts\), ship, notify: Parcel Post",
        r"ord-invalid +refused +nothing is stored",
        r"ord-malformed +create +refused +400 BAD_REQUEST",
        r"ord-invalid +create +refused +422 VALIDATION_FAILED",
        r"\$ iii-runtime dlq list\nreceipt +queue +function",
        r"order-payment +orders::charge-payment .* the card was declined",
        r"order-validate +orders::validate .* product 'kettle' is not in the catalogue",
        r"\$ iii-runtime dlq redrive order-validate --all\n1 redriven\n",
        r"ord-unknown-product +notify +complete",
        r"\$ iii-runtime dlq list order-validate\nThere are no dead letters on queue 'order-validate'.\n",
        r"export III_DATA=\S+ .*temporary: removed at the end",
    ]
    assert [line for line in expected_lines if re.search(line, output) is None] == []
    assert "\x1b" not in output
    assert not data_directory(output).exists()


def test_an_interrupted_demo_stops_its_host_and_removes_its_data(demo: subprocess.Popen[str]) -> None:
    """As Ctrl-C does."""
    assert demo.stdout is not None
    first = demo.stdout.readline()
    address = address_of_host(demo)

    demo.send_signal(signal.SIGINT)
    _, complaints = demo.communicate(timeout=30)

    assert demo.returncode == 130
    assert complaints == "interrupted\n"
    assert not data_directory(first).exists()
    assert not is_listening(address)


def test_the_host_does_not_outlive_a_killed_demo(demo: subprocess.Popen[str]) -> None:
    address = address_of_host(demo)
    assert is_listening(address)

    demo.kill()
    demo.communicate(timeout=30)

    assert not is_listening(address)


def is_listening(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True
