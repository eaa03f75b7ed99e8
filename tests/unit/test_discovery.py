"""Workers are found by importing files, folders, packages and modules."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from iii_runtime.core.errors import HostError
from iii_runtime.hosts.embedded.discovery import discover_workers

WORKER = "from iii_runtime import register_worker\nworker = register_worker(worker_name='{name}')\n"

PROXY = """
class Proxy:
    @property
    def __class__(self): raise RuntimeError("outside of a request")
request = Proxy()
"""


@pytest.fixture(autouse=True)
def modules_are_forgotten() -> Iterator[None]:
    known, path = set(sys.modules), list(sys.path)
    yield
    for name in set(sys.modules) - known:
        del sys.modules[name]
    sys.path[:] = path


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def names(*targets: object) -> list[str]:
    return [worker.name for worker in discover_workers([str(target) for target in targets])]


def test_a_file_is_a_target(tmp_path: Path) -> None:
    write(tmp_path, disc_one=WORKER.format(name="one"))
    assert names(tmp_path / "disc_one.py") == ["one"]


def test_the_files_of_a_plain_folder_import_each_other_and_run_once(tmp_path: Path) -> None:
    using = "from disc_shared import worker\nworker.register_function('a::b', print)\n"
    write(tmp_path / "app", disc_a=using, disc_shared=WORKER.format(name="shared"), disc_z="import disc_a\n")
    assert names(tmp_path / "app") == ["shared"]


def test_a_package_is_imported_whole_but_for_its_main(tmp_path: Path) -> None:
    write(tmp_path / "disc_pkg", __init__="", shared=WORKER.format(name="pkg"), __main__="raise SystemExit\n")
    write(tmp_path / "disc_pkg" / "deep", __init__="", more="from disc_pkg.shared import worker\n")
    assert names(tmp_path / "disc_pkg") == ["pkg"]
    assert "disc_pkg.deep.more" in sys.modules


def test_a_file_of_a_package_is_imported_as_part_of_it(tmp_path: Path) -> None:
    write(
        tmp_path / "disc_part",
        __init__="",
        shared=WORKER.format(name="part"),
        a="from disc_part.shared import worker\n",
    )
    assert names(tmp_path / "disc_part" / "a.py") == ["part"]


def test_a_dotted_module_is_found_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "disc_dotted", __init__="", a=WORKER.format(name="dotted"))
    monkeypatch.chdir(tmp_path)
    assert names("disc_dotted.a") == ["dotted"]


@pytest.mark.parametrize("target", ["disc_missing.py", "disc_missing", "disc_missing.deeper"])
def test_a_target_that_is_not_there_is_named(target: str) -> None:
    with pytest.raises(HostError, match="disc_missing") as caught:
        discover_workers([target])
    assert caught.value.code == "worker_not_found"


def test_a_module_that_was_imported_before_still_yields_its_worker(tmp_path: Path) -> None:
    write(tmp_path / "disc_again", __init__="", a=WORKER.format(name="again"))
    assert names(tmp_path / "disc_again") == ["again"]
    assert names(tmp_path / "disc_again") == ["again"]


def test_a_file_without_a_worker_is_told_what_to_do(tmp_path: Path) -> None:
    write(tmp_path, disc_none="x = 1\n")
    with pytest.raises(HostError, match="register_worker") as caught:
        names(tmp_path / "disc_none.py")
    assert caught.value.code == "worker_not_found"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\nimport disc_not_there\n", 2, "ModuleNotFoundError"),
        ("x = 1\n\nraise ValueError('no')\n", 3, "ValueError: no"),
        ("def f(:\n", 1, "SyntaxError"),
        ("from iii_runtime import Cron\n\nCron('* * * * *')\n", 3, "found 5 fields"),
        ("from iii_runtime import Http\nHttp('FETCH', '/a')\n", 2, "FETCH"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
        ("x = 1\nraise GeneratorExit('no')\n", 2, "GeneratorExit: no"),
        ("class Odd(BaseException): pass\nraise Odd('no')\n", 2, "Odd: no"),
        ("class Mute(Exception):\n    def __str__(self): raise OSError\nraise Mute\n", 3, "its text cannot be had"),
        ("import asyncio\nraise asyncio.CancelledError\n", 2, "CancelledError"),
        ("import json\njson.loads('{')\n", 2, "JSONDecodeError: Expecting property name"),
        ("raise SyntaxError('of my own')\n", 1, "SyntaxError: of my own"),
        ("x = 1\ny = '\0'\n", 2, "SyntaxError: source code string cannot contain null bytes"),
        ("def deeper(): deeper()\ndeeper()\n", 1, "RecursionError"),
        (
            "from iii_runtime import register_worker\nregister_worker().trigger({'function_id': 'a::b'})\n",
            2,
            "no host runs",
        ),
    ],
)
def test_a_failing_import_names_file_and_line_of_the_user(tmp_path: Path, text: str, line: int, said: str) -> None:
    file = write(tmp_path, disc_bad=text) / "disc_bad.py"
    with pytest.raises(HostError) as caught:
        names(file)
    assert caught.value.code == "worker_import_failed"
    assert caught.value.message.startswith(f"{file}:{line}: ")
    assert said in caught.value.message


@pytest.mark.parametrize("text", [b"x = 1\ny = '\xe4'\n", b"# coding: nonsense\nx = 1\n"])
def test_a_file_that_is_no_text_is_named(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "disc_bytes.py"
    file.write_bytes(text)
    with pytest.raises(HostError) as caught:
        names(file)
    assert caught.value.code == "worker_import_failed"
    assert re.match(rf"{re.escape(str(file))}:\d: SyntaxError: ", caught.value.message)


def test_of_a_module_with_a_zero_byte_the_one_that_imports_it_is_named(tmp_path: Path) -> None:
    """Python does not say more."""
    folder = write(tmp_path / "app", disc_a="x = 1\nimport disc_zero\n", disc_zero="x = '\0'\n")
    with pytest.raises(HostError, match=r"disc_a\.py:2: SyntaxError: .*null bytes"):
        names(folder)


def test_a_text_of_megabytes_is_cut(tmp_path: Path) -> None:
    file = write(tmp_path, disc_long="raise ValueError('x' * 5_000_000)\n") / "disc_long.py"
    with pytest.raises(HostError, match=r"ValueError: x+\.\.\. \(5000000 characters\)$") as caught:
        names(file)
    assert len(caught.value.message) < 3000


def test_a_developer_can_stop_an_import(tmp_path: Path) -> None:
    write(tmp_path, disc_stop="raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        names(tmp_path / "disc_stop.py")


def test_a_value_that_cannot_be_asked_what_it_is_does_no_harm(tmp_path: Path) -> None:
    text = WORKER.format(name="proxied") + PROXY
    write(tmp_path, disc_proxy=text)
    assert names(tmp_path / "disc_proxy.py") == ["proxied"]
    assert names(tmp_path / "disc_proxy.py") == ["proxied"]


def test_a_package_that_imports_something_missing_is_not_itself_called_missing(tmp_path: Path) -> None:
    write(tmp_path / "disc_app", a="from disc_app_other.shared import worker\n")
    with pytest.raises(HostError, match=r"a\.py:1: ModuleNotFoundError"):
        names(tmp_path / "disc_app")


def test_a_file_named_like_another_module_is_refused(tmp_path: Path) -> None:
    write(tmp_path, queue=WORKER.format(name="clash"))
    with pytest.raises(HostError, match="another module is called 'queue'") as caught:
        names(tmp_path / "queue.py")
    assert caught.value.code == "module_name_taken"
