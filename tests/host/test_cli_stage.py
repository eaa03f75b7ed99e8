"""Commands with `--stage`: the words and the output are those of the same commands on this machine.

The control Lambda is a session on a data directory; `test_cli_stage_aws.py` has the real one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.commands import answer, refused, run
from tests.host.stage import REGION, Asked, lambda_service, no_credentials, own_credentials, refusal

pytestmark = pytest.mark.usefixtures("own_folder")

STAGE = ("--stage", "prod")


SAME = [
    ("functions",),
    ("functions", "--json"),
    ("trigger", "shop::echo", "--payload", '{"x": "ü"}', "--metadata", '{"who": "me"}'),
    ("trigger", "shop::echo", "--json"),
    ("trigger", "shop::echo", "--void"),
    ("trigger", "state::set", "--payload", '{"scope": "s", "key": "k", "value": 1}', "--json"),
    ("state", "set", "orders", "1", '{"n": 1}'),
    ("state", "get", "orders", "1"),
    ("state", "list", "orders", "--json"),
    ("state", "delete", "orders", "1"),
    ("state", "scopes"),
    ("stream", "list", "s"),
    ("stream", "list", "s", "g", "--json"),
    ("dlq", "list"),
    ("dlq", "list", "--json", "--limit", "2", "--offset", "1"),
    ("dlq", "list", "default"),
    ("dlq", "show", "RECEIPT"),
    ("dlq", "show", "RECEIPT", "--json"),
    ("dlq", "redrive", "default", "RECEIPT", "--json"),
    ("dlq", "redrive", "default", "--all"),
    ("dlq", "discard", "default", "RECEIPT"),
    ("dlq", "discard", "default", "--all", "--yes", "--json"),
    ("queues", "purge", "default", "--yes", "--json"),
]


@pytest.mark.parametrize("arguments", SAME, ids=" ".join)
def test_the_output_is_that_of_the_same_command_on_this_machine(
    arguments: tuple[str, ...], stage: Asked, dead_there: tuple[str, ...]
) -> None:
    given = [argument.replace("RECEIPT", dead_there[1]) for argument in arguments]
    here = run(*given)
    assert stage == []
    there = run(*given, *STAGE)
    assert stage != []
    assert (there.exit_code, there.stdout) == (here.exit_code, here.stdout) == (0, here.stdout)


@pytest.mark.parametrize(
    "arguments",
    [
        ("trigger", "shop::crash"),
        ("trigger", "shop::none"),
        ("trigger", "shop::echo", "--queue", "none"),
        ("dlq", "list", "typo"),
        ("dlq", "show", "nothing"),
        ("dlq", "redrive", "default", "nothing"),
        ("queues", "purge", "typo", "--yes"),
        ("state", "set", "", "k", "1"),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("dead_there")
def test_an_error_is_that_of_the_same_command_on_this_machine(arguments: tuple[str, ...], stage: Asked) -> None:
    def block(told: str) -> list[str]:
        """But for the name of a builtin, which those who open the store themselves are not told."""
        lines = told[told.index("error: ") :].splitlines()
        return [line for line in lines if not line.startswith(("  function: iii::", "  function: engine::"))]

    here, there = refused(1, *arguments), refused(1, *arguments, *STAGE)
    assert block(there.replace(" --stage prod`", "`")) == block(here)
    assert stage != []


@pytest.mark.usefixtures("stage")
def test_a_command_that_helps_is_one_for_the_stage() -> None:
    told = refused(1, "dlq", "list", "typo", *STAGE, "--region", REGION)
    assert f"`iii-runtime queues --stage prod --region {REGION}` lists the queues." in told


def test_a_receipt_is_printed_and_no_host_is_missed(stage: Asked) -> None:
    result = run("trigger", "shop::fail", "--queue", "default", "--dedupe-id", "a", "--json", *STAGE)
    assert list(json.loads(result.stdout)) == ["messageReceiptId"]
    assert result.stderr == ""
    assert stage[0][1]["iii"]["request"]["action"] == {
        "type": "enqueue",
        "queue": "default",
        "delay": 0,
        "dedupe_id": "a",
    }
    assert not Path("data").exists()


@pytest.mark.usefixtures("stage")
def test_an_event_file_can_be_sent_to_a_stage() -> None:
    record = {"eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:eu-west-1:1:default", "messageId": "m"}
    Path("event.json").write_text(json.dumps({"Records": [{**record, "body": "[7]"}]}))
    assert answer("trigger", "shop::echo", "--event", "event.json", *STAGE)["payload"] == [7]


class TestWhatIsNotThere:
    @pytest.fixture(autouse=True)
    def credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own_credentials(monkeypatch)

    def test_a_stage_that_is_not_deployed_says_how_to_deploy_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        missing = refusal(404, "ResourceNotFoundException", "Function not found: arn")
        asked = lambda_service(monkeypatch, "Invoke", lambda _name, _body: missing)
        told = refused(2, "state", "scopes", "--stage", "dev")
        assert told.startswith("error: stage_not_deployed: stage 'dev' of app 'iii' is not deployed in eu-west-1.")
        assert "`cdk deploy -c stage=dev`" in told
        assert asked[0][0] == "iii-dev-x-control"

    def test_the_error_is_one_object_for_programs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        lambda_service(monkeypatch, "Invoke", lambda _name, _body: refusal(403, "AccessDeniedException", "not you"))
        error = json.loads(refused(2, "state", "scopes", *STAGE, "--json"))["error"]
        assert error["code"] == "aws_access_denied"

    def test_the_app_is_that_of_the_configuration_unless_it_is_given(self, monkeypatch: pytest.MonkeyPatch) -> None:
        Path("iii-config.yaml").write_text("workers:\n  - name: iii-aws\n    config: { app: shop }\n")
        asked = lambda_service(monkeypatch, "Invoke", lambda _name, _body: (200, {}, {"ok": {"groups": []}}))
        for app in ((), ("--app", "other")):
            assert run("state", "scopes", *STAGE, *app).exit_code == 0
        assert [name for name, _ in asked] == ["shop-prod-x-control", "other-prod-x-control"]

    @pytest.mark.parametrize(
        ("region", "environment", "host"),
        [
            (("--region", "us-east-1"), {"AWS_REGION": "eu-west-1"}, "us-east-1"),
            ((), {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-1"}, "eu-west-1"),
            ((), {"AWS_DEFAULT_REGION": "us-east-1"}, "us-east-1"),
        ],
    )
    def test_the_region_is_that_of_the_option_then_of_the_environment(
        self, region: tuple[str, ...], environment: dict[str, str], host: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
            monkeypatch.delenv(name)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        lambda_service(monkeypatch, "Invoke", lambda _name, _body: refusal(404, "ResourceNotFoundException", "no"))
        assert f"is not deployed in {host}." in refused(2, "state", "scopes", *STAGE, *region)

    def test_without_region_or_credentials_it_says_how_to_get_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        no_credentials(monkeypatch)
        assert "error: aws_region_missing: " in refused(2, "state", "scopes", *STAGE)
        assert "error: aws_credentials_missing: " in refused(2, "state", "scopes", *STAGE, "--region", REGION)
        assert "error: aws_profile_missing: " in refused(2, "state", "scopes", *STAGE, "--profile", "nobodys")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--region", "eu-west-1"), "--region needs --stage."),
        (("--profile", "work"), "--profile needs --stage."),
        (("--app", "shop"), "--app needs --stage."),
        (("--stage", ""), "no stage name"),
        (("--stage", "Prod!"), "no stage name"),
        (("--stage", "prod", "--data", "d"), "--data is for this machine"),
        (("--stage", "prod", "--worker", "w"), "--worker is for this machine"),
    ],
)
def test_options_that_cannot_be_meant_are_usage_errors(arguments: tuple[str, ...], text: str) -> None:
    assert text in refused(2, "functions", *arguments)


def test_a_data_directory_of_the_environment_is_no_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    own_credentials(monkeypatch)
    monkeypatch.setenv("III_DATA", "elsewhere")
    lambda_service(monkeypatch, "Invoke", lambda _name, _body: (200, {}, {"ok": {"functions": []}}))
    assert answer("functions", *STAGE) == {"functions": []}


@pytest.mark.process
class TestProcess:
    def test_without_the_extra_it_says_what_to_install(self) -> None:
        code = "import sys; sys.modules['boto3'] = None; from iii_runtime.cli.entry import main; sys.exit(main())"
        command = [sys.executable, "-c", code, "state", "scopes", "--stage", "prod"]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
        assert (result.returncode, result.stdout) == (2, "")
        assert result.stderr == "error: extra_missing: --stage needs the extra: pip install 'iii-runtime[aws]'\n"

    def test_without_a_stage_no_library_of_aws_is_loaded(self) -> None:
        code = (
            "import sys\nfrom iii_runtime.cli.main import main\nmain(['queues', '--json'])\n"
            "print(*({'boto3', 'botocore'} & set(sys.modules)))"
        )
        result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert result.stdout.splitlines()[-1] == ""
