"""What a Lambda finds in its bundle."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iii_runtime.core.config import Config
from iii_runtime.core.errors import HostError
from iii_runtime.hosts.aws_lambda.bundle import load_manifest, load_workers, local_functions
from iii_runtime.hosts.embedded.discovery import discover_workers
from iii_runtime.plan.manifest import MANIFEST_NAME, Manifest, describe_app, read_manifest

Bundle = Callable[..., Manifest]

BASE = "from iii_runtime import register_worker\nworker = register_worker(worker_name='bundled')\n"
PAY = """
from bundled_base import worker
from iii_runtime import Queue
@worker.function("shop::pay", triggers=[Queue("pay", condition="shop::is-open")])
def pay(data): ...
"""
OPEN = """
from bundled_base import worker
@worker.function("shop::is-open")
def is_open(data): return True
"""
SHIP = """
from bundled_base import worker
@worker.function("shop::ship")
def ship(data): ...
"""


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bundle]:
    """Write modules, describe the app they make in a manifest, and forget them again."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget() -> None:
        for name in [name for name in sys.modules if name.startswith("bundled_")]:
            del sys.modules[name]

    def build(**modules: str) -> Manifest:
        for name, text in modules.items():
            (tmp_path / f"{name}.py").write_text(text)
        workers = discover_workers(list(modules))
        stored = json.dumps(describe_app(Config(), workers, list(modules)))
        (tmp_path / MANIFEST_NAME).write_text(stored)
        forget()
        return read_manifest(json.loads(stored))

    yield build
    forget()


def test_only_the_modules_of_the_function_and_of_its_conditions_are_imported(bundle: Bundle) -> None:
    manifest = bundle(bundled_base=BASE, bundled_pay=PAY, bundled_open=OPEN, bundled_ship=SHIP)
    local = local_functions(manifest, "shop::pay")
    assert local == {"shop::pay", "shop::is-open"}
    (worker,) = load_workers(manifest, local)
    assert worker.name == "bundled"
    assert {"bundled_pay", "bundled_open"} <= sys.modules.keys()
    assert "bundled_ship" not in sys.modules


def test_the_runtimes_own_lambdas_import_nothing(bundle: Bundle) -> None:
    manifest = bundle(bundled_base=BASE, bundled_pay=PAY)
    assert load_workers(manifest, local_functions(manifest, None)) == []
    assert "bundled_pay" not in sys.modules


def test_modules_that_were_imported_before_have_their_workers_found(bundle: Bundle) -> None:
    manifest = bundle(bundled_base=BASE, bundled_ship=SHIP)
    first = load_workers(manifest, {"shop::ship"})
    assert load_workers(manifest, {"shop::ship"}) == first != []


def test_if_the_named_module_does_not_register_the_function_everything_is_imported(
    bundle: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest = bundle(bundled_base=BASE, bundled_ship=SHIP, bundled_more="import bundled_ship\n")
    stored = json.loads((tmp_path / MANIFEST_NAME).read_text())
    stored["functions"][0]["module"] = "bundled_base"
    manifest = read_manifest(stored)
    with caplog.at_level(logging.WARNING, logger="iii_runtime"):
        assert load_workers(manifest, {"shop::ship"})
    assert [record.__dict__["iii"]["functions"] for record in caplog.records] == [["shop::ship"]]
    assert "bundled_more" in sys.modules


def test_a_function_that_is_nowhere_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    manifest = bundle(bundled_base=BASE, bundled_ship=SHIP)
    (tmp_path / "bundled_ship.py").write_text("from bundled_base import worker\n")
    with pytest.raises(HostError, match=r"function 'shop::ship' .*bundled_ship.py:3") as caught:
        load_workers(manifest, {"shop::ship"})
    assert caught.value.code == "function_not_in_bundle"
    with pytest.raises(HostError, match="'shop::gone' is not in the manifest") as caught:
        load_workers(manifest, {"shop::gone"})
    assert caught.value.code == "function_not_in_bundle"


@pytest.mark.parametrize(
    "statement",
    [
        "raise ValueError('at import')",
        "import sys; sys.exit('at import')",
        "raise KeyboardInterrupt('at import')",
        "raise GeneratorExit('at import')",
        "raise type('Odd', (BaseException,), {})('at import')",
    ],
)
def test_an_import_that_fails_names_file_and_line(bundle: Bundle, tmp_path: Path, statement: str) -> None:
    manifest = bundle(bundled_base=BASE, bundled_ship=SHIP)
    (tmp_path / "bundled_ship.py").write_text(f"x = 1\n{statement}\n")
    with pytest.raises(HostError, match=r"bundled_ship.py:2: \w+: at import") as caught:
        load_workers(manifest, {"shop::ship"})
    assert caught.value.code == "worker_import_failed"


def test_an_error_without_a_text_is_told_all_the_same(bundle: Bundle, tmp_path: Path) -> None:
    manifest = bundle(bundled_base=BASE, bundled_ship=SHIP)
    mute = "class Mute(Exception):\n    def __str__(self): raise OSError\nraise Mute\n"
    (tmp_path / "bundled_ship.py").write_text(mute)
    with pytest.raises(HostError, match=r"bundled_ship.py:3: Mute: .*its text cannot be had") as caught:
        load_workers(manifest, {"shop::ship"})
    assert caught.value.code == "worker_import_failed"


def test_a_value_of_the_code_that_cannot_be_asked_what_it_is_does_no_harm(bundle: Bundle, tmp_path: Path) -> None:
    manifest = bundle(bundled_base=BASE, bundled_ship=SHIP)
    proxy = "class Proxy:\n    @property\n    def __class__(self): raise RuntimeError\nrequest = Proxy()\n"
    (tmp_path / "bundled_ship.py").write_text(SHIP + proxy)
    assert len(load_workers(manifest, {"shop::ship"})) == 1


def test_code_that_puts_something_else_in_place_of_its_module_is_loaded(bundle: Bundle, tmp_path: Path) -> None:
    manifest = bundle(bundled_base=BASE, bundled_ship=SHIP)
    (tmp_path / "bundled_ship.py").write_text(f"{SHIP}\nimport sys\nsys.modules[__name__] = object()\n")
    assert load_workers(manifest, {"shop::ship"}) != []


def test_a_manifest_is_read_from_the_root(bundle: Bundle, tmp_path: Path) -> None:
    manifest = bundle(bundled_base=BASE, bundled_ship=SHIP)
    assert load_manifest(tmp_path) == manifest


def test_a_missing_manifest_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostError, match=r"iii-manifest.json: no such file.*Build the bundle") as caught:
        load_manifest(tmp_path)
    assert caught.value.code == "manifest_missing"


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 99}', '{"format": 1}'])
def test_a_damaged_manifest_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST_NAME).write_text(text)
    with pytest.raises(HostError) as caught:
        load_manifest(tmp_path)
    assert caught.value.code == "manifest_unreadable"
