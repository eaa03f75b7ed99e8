"""What an app registers is found out in a child process: nothing of it happens here."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from iii_runtime.core.config import ConfigError
from iii_runtime.core.errors import HostError
from iii_runtime.hosts.embedded.manifest_discovery import DiscoveredApp, discover_app, discover_manifest
from iii_runtime.plan.manifest import read_manifest

WORKER = """
from iii_runtime import Http, register_worker
worker = register_worker()

@worker.function("{id}", triggers=[Http("GET", "/{path}")])
def handle(request):
    return request
"""
ROOT = Path(__file__).parents[2]


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(dedent(text))
    return folder


def found(root: Path, *targets: str, env: Mapping[str, str] | None = None, config: str | None = None) -> DiscoveredApp:
    return discover_app(targets, config, project_root=root, env=os.environ if env is None else env)


def refusal(root: Path, *targets: str, timeout: timedelta = timedelta(seconds=60)) -> HostError:
    with pytest.raises(HostError) as caught:
        discover_app(targets, None, project_root=root, env=os.environ, timeout=timeout)
    return caught.value


def test_a_package_is_described_by_its_dotted_modules_from_the_root(tmp_path: Path) -> None:
    write(tmp_path / "shop", __init__="", pay=WORKER.format(id="shop::pay", path="pay"))
    app = found(tmp_path, "shop")
    manifest = read_manifest(app.manifest)
    assert manifest.targets == ("shop", "shop.pay")
    (function,) = manifest.catalog.functions.values()
    assert (function.id, function.module, function.source) == ("shop::pay", "shop.pay", f"shop{os.sep}pay.py:5")
    assert [trigger.source for trigger in manifest.catalog.triggers] == [f"shop{os.sep}pay.py:5"]
    assert app.code == {"shop": tmp_path / "shop"}


def test_a_package_below_the_root_keeps_the_name_it_is_imported_by(tmp_path: Path) -> None:
    write(tmp_path / "src" / "shop" / "deep", __init__="", pay=WORKER.format(id="shop::pay", path="pay"))
    write(tmp_path / "src" / "shop", __init__="")
    app = found(tmp_path, "src/shop/deep")
    assert app.manifest["targets"] == ["shop.deep", "shop.deep.pay"]
    assert app.code == {"shop": tmp_path / "src" / "shop"}


def test_files_of_a_plain_folder_have_their_bare_names(tmp_path: Path) -> None:
    write(
        tmp_path / "app",
        found_pay=WORKER.format(id="shop::pay", path="pay") + "import found_prices\n",
        found_prices="PRICES = {}\n",
    )
    app = found(tmp_path, "app")
    assert app.manifest["targets"] == ["found_pay", "found_prices"]
    assert app.code == {name: tmp_path / "app" / f"{name}.py" for name in ("found_pay", "found_prices")}


def test_a_file_and_a_dotted_module_are_targets_and_what_they_import_of_the_project_is_their_code(
    tmp_path: Path,
) -> None:
    write(tmp_path / "shop", __init__="", pay="import found_rates\n" + WORKER.format(id="shop::pay", path="pay"))
    write(tmp_path, found_rates="RATES = {}\n", found_one=WORKER.format(id="shop::one", path="one"))
    app = found(tmp_path, "found_one.py", "shop.pay")
    assert app.manifest["targets"] == ["found_one", "shop.pay"]
    assert app.code.keys() == {"found_one", "found_rates", "shop"}


def test_the_manifest_is_the_same_wherever_the_project_lies(tmp_path: Path) -> None:
    for place in ("here", "there"):
        write(tmp_path / place / "shop", __init__="", pay=WORKER.format(id="shop::pay", path="pay"))
        (tmp_path / place / "iii.yaml").write_text("workers:\n  - name: iii-aws\n")
    first, second = (found(tmp_path / place, "shop", config="iii.yaml") for place in ("here", "there"))
    assert first.manifest == second.manifest
    assert first.manifest["config"]["source"] == "iii.yaml"


def test_what_the_code_does_to_its_process_is_not_done_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FOUND_VICTIM", "whole")
    nasty = """
        import os, subprocess, sys, threading
        os.environ["FOUND_VICTIM"] = "broken"
        sys.modules["json"] = None
        sys.path.clear()
        sys.stdout.write("first words\\n")
        os.write(1, b"from below\\n")
        subprocess.run(["echo", "from a child"])
        threading.Thread(target=threading.Event().wait).start()
    """
    write(tmp_path / "shop", __init__="", pay=WORKER.format(id="shop::pay", path="pay") + dedent(nasty))
    modules, path = dict(sys.modules), [*sys.path]
    manifest = discover_manifest(["shop"], None, project_root=tmp_path, env=os.environ)
    assert [function["id"] for function in manifest["functions"]] == ["shop::pay"]
    assert os.environ["FOUND_VICTIM"] == "whole"
    assert {name for name in sys.modules if name.partition(".")[0] == "shop"} == set()
    assert (sys.modules["json"], sys.path) == (modules["json"], path)
    out, err = capfd.readouterr()
    assert out == ""
    assert {"first words", "from below", "from a child"} <= set(err.splitlines())


def test_the_code_sees_no_credentials_and_knows_that_it_is_looked_at(tmp_path: Path) -> None:
    text = """
        import os
        seen = {name: value for name, value in os.environ.items() if name.startswith(("AWS_", "CDK_", "JSII_", "III_"))}
        worker.register_function("shop::env", print, metadata={**seen, "MINE": os.environ["MINE"]})
    """
    write(tmp_path / "shop", __init__="", pay=WORKER.format(id="shop::pay", path="pay") + dedent(text))
    env = {
        "PATH": os.environ["PATH"],
        "MINE": "kept",
        "AWS_ACCESS_KEY_ID": "AKIAREAL",
        "AWS_SECRET_ACCESS_KEY": "real",
        "AWS_SESSION_TOKEN": "real",
        "AWS_PROFILE": "admin",
        "CDK_OUTDIR": "cdk.out",
        "JSII_AGENT": "x",
    }
    app = found(tmp_path, "shop", env=env)
    seen = next(function["metadata"] for function in app.manifest["functions"] if function["id"] == "shop::env")
    assert seen == {
        "MINE": "kept",
        "III_DISCOVERY": "1",
        "AWS_ACCESS_KEY_ID": "discovery",
        "AWS_SECRET_ACCESS_KEY": "discovery",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


def test_code_that_synthesises_when_it_is_imported_is_refused_and_not_started_over_and_over(tmp_path: Path) -> None:
    app = """
        import os
        from pathlib import Path
        from iii_runtime.hosts.embedded.manifest_discovery import discover_app

        discover_app(["."], None, project_root=Path.cwd(), env=os.environ)
    """
    write(tmp_path, app=app)
    error = refusal(tmp_path, ".")
    assert error.code == "discovery_nested"
    assert "Put the functions into a folder of their own" in error.message


def test_variables_of_the_configuration_are_those_that_are_given(tmp_path: Path) -> None:
    write(tmp_path, found_pay=WORKER.format(id="shop::pay", path="pay"))
    (tmp_path / "iii.yaml").write_text("workers:\n  - name: iii-aws\n    config: {app: '${AWS_APP}'}\n")
    app = found(tmp_path, "found_pay.py", env={**os.environ, "AWS_APP": "store"}, config="iii.yaml")
    assert read_manifest(app.manifest).config.aws.app == "store"
    with pytest.raises(ConfigError, match="AWS_APP is not set"):
        found(tmp_path, "found_pay.py", config="iii.yaml")


def test_a_failing_import_is_told_with_file_line_and_traceback(tmp_path: Path) -> None:
    text = """
        import os
        def needed(name):
            return os.environ[name]
        KEY = needed("FOUND_NOWHERE")
    """
    write(tmp_path / "shop", __init__="", pay=text)
    error = refusal(tmp_path, "shop")
    lines = error.message.splitlines()
    file = tmp_path / "shop" / "pay.py"
    assert error.code == "worker_import_failed"
    assert lines[0] == f"{file}:4: KeyError: 'FOUND_NOWHERE'"
    assert f'  File "{file}", line 5, in <module>' in lines
    assert '    KEY = needed("FOUND_NOWHERE")' in lines
    assert "iii_runtime" not in "\n".join(lines)


def test_what_cannot_be_registered_is_told_as_everywhere(tmp_path: Path) -> None:
    write(tmp_path / "shop", __init__="", a="from iii_runtime import Cron\nCron('* * * * *')\n")
    error = refusal(tmp_path, "shop")
    assert error.code == "worker_import_failed"
    assert "a.py:2: RegistrationError: " in error.message


@pytest.mark.parametrize(
    ("target", "code"), [("nowhere.py", "worker_not_found"), ("../outside.py", "worker_outside_project")]
)
def test_a_target_that_is_not_in_the_project_is_named(tmp_path: Path, target: str, code: str) -> None:
    write(tmp_path, outside=WORKER.format(id="shop::pay", path="pay"))
    error = refusal(write(tmp_path / "project"), target)
    assert error.code == code
    assert Path(target).name in error.message


KILLING = {
    "os._exit(7)": "SystemExit: os._exit(7)",
    "os.abort()": "the process that imports it ended with SIGABRT and no answer",
    "ctypes.string_at(0)": "the process that imports it ended with SIGSEGV and no answer",
}


@pytest.mark.parametrize("statement", KILLING)
def test_code_that_ends_the_process_is_told_with_its_line(tmp_path: Path, statement: str) -> None:
    file = write(tmp_path, found_end=f"import ctypes, os\ndef end():\n    {statement}\nend()\n") / "found_end.py"
    error = refusal(tmp_path, "found_end.py")
    assert error.code == "worker_import_failed"
    assert error.message.startswith(f"{file}:3: {KILLING[statement]}")


@pytest.mark.parametrize(
    ("statement", "end"), [("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"), ("posix._exit(7)", "7")]
)
def test_code_that_ends_the_process_at_once_is_told_with_its_last_words(
    tmp_path: Path, statement: str, end: str
) -> None:
    write(tmp_path, found_end=f"import os, posix, signal\nprint('farewell', flush=True)\n{statement}\n")
    error = refusal(tmp_path, "found_end.py")
    assert error.code == "worker_import_failed"
    assert error.message.startswith(f"found_end.py: the process that imports it ended with {end} and no answer")
    assert error.message.endswith("farewell")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise GeneratorExit('no')", "GeneratorExit: no"),
        ("raise type('Odd', (BaseException,), {'__str__': None})", "its text cannot be had"),
        ("y = '\0'", "source code string cannot contain null bytes"),
        ("raise ValueError('x' * 5_000_000)", "(5000000 characters)"),
    ],
)
def test_whatever_comes_out_of_an_import_is_told_with_its_line(tmp_path: Path, statement: str, told: str) -> None:
    file = write(tmp_path, found_odd=f"x = 1\n{statement}\n") / "found_odd.py"
    error = refusal(tmp_path, "found_odd.py")
    assert error.code == "worker_import_failed"
    first = error.message.splitlines()[0]
    assert first.startswith(f"{file}:2: ")
    assert told in first
    assert len(error.message) < 20_000


def test_a_file_that_is_no_text_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "found_bytes.py").write_bytes(b"x = 1\ny = '\xe4'\n")
    error = refusal(tmp_path, "found_bytes.py")
    assert error.code == "worker_import_failed"
    assert error.message.startswith(f"{tmp_path / 'found_bytes.py'}:2: SyntaxError: ")


def test_code_that_waits_for_ever_is_given_up_with_the_line_that_waits(tmp_path: Path) -> None:
    """With what it has started."""
    text = """
        import subprocess, sys, threading
        subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
        threading.Event().wait()
    """
    file = write(tmp_path, found_wait=text) / "found_wait.py"
    error = refusal(tmp_path, "found_wait.py", timeout=timedelta(seconds=1))
    assert error.code == "discovery_timeout"
    assert error.message.startswith(f"{file}:4: the import took longer than 1 s.")


HARMLESS = {
    "megabytes on stdout": "print('x' * 5_000_000)",
    "a thread that does not end": "import threading; threading.Thread(target=threading.Event().wait).start()",
    "a thread and no stdout": """
        import sys, threading
        threading.Thread(target=threading.Event().wait).start()
        sys.stdout = None
    """,
    "a forked process that does not end": """
        import os, threading
        if os.fork() == 0:
            threading.Event().wait()
    """,
    "a forked process that ends": """
        import os
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    """,
    "a module that cannot be asked for its file": """
        import sys, types
        class Late(types.ModuleType):
            def __getattr__(self, name):
                raise ImportError(name)
        sys.modules["late"] = Late("late")
    """,
}


@pytest.mark.parametrize("left", HARMLESS)
def test_what_the_code_leaves_behind_does_not_hold_up_the_answer(tmp_path: Path, left: str) -> None:
    write(tmp_path, found_left=WORKER.format(id="shop::pay", path="pay") + dedent(HARMLESS[left]))
    app = discover_app(["found_left.py"], None, project_root=tmp_path, env=os.environ, timeout=timedelta(seconds=20))
    assert app.manifest["targets"] == ["found_left"]


def test_a_process_that_the_code_leaves_running_does_not_hold_up_the_answer(tmp_path: Path) -> None:
    text = """
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
    """
    write(tmp_path, found_left=WORKER.format(id="shop::pay", path="pay") + dedent(text))
    assert found(tmp_path, "found_left.py").manifest["targets"] == ["found_left"]


def test_a_file_of_the_project_is_not_taken_for_a_module_of_pythons_own(tmp_path: Path) -> None:
    write(tmp_path, json="raise SystemExit('not me')\n")
    write(tmp_path / "shop", __init__="", pay=WORKER.format(id="shop::pay", path="pay"))
    assert found(tmp_path, "shop").manifest["targets"] == ["shop", "shop.pay"]


def test_nothing_is_written_into_the_project(tmp_path: Path) -> None:
    write(tmp_path / "shop", __init__="", pay=WORKER.format(id="shop::pay", path="pay"))
    found(tmp_path, "shop")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["__init__.py", "pay.py", "shop"]


def test_the_order_pipeline_is_found() -> None:
    manifest = read_manifest(found(ROOT, "functions", config="iii-config.yaml").manifest)
    assert "orders::charge-payment" in manifest.catalog.functions
    assert manifest.config.aws.app == "orders"
