"""`trigger` without a host: functions run in the command itself. Those that need a host are in `test_dev.py`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.host.commands import answer, done, refused, run

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.usefixtures("shop")
class TestTrigger:
    def test_it_prints_the_result_as_readable_json(self) -> None:
        expected = '{\n  "payload": [\n    "ü"\n  ],\n  "metadata": null\n}\n'
        assert done("trigger", "shop::echo", "--payload", '["ü"]') == expected

    def test_json_is_one_line_and_what_functions_log_and_print_goes_to_stderr(self) -> None:
        result = run("trigger", "shop::echo", "--json")
        assert result.stdout == '{"payload":null,"metadata":null}\n'
        assert "echoing" in result.stderr
        assert "printed by the function" in result.stderr

    def test_the_payload_can_come_from_stdin_or_a_file(self) -> None:
        Path("payload.json").write_text('{"from": "file"}')
        assert answer("trigger", "shop::echo", "--payload", "-", stdin='"stdin"')["payload"] == "stdin"
        assert answer("trigger", "shop::echo", "--payload", "@payload.json")["payload"] == {"from": "file"}

    def test_metadata_is_handed_over(self) -> None:
        assert answer("trigger", "shop::echo", "--metadata", '{"who": "me"}')["metadata"] == {"who": "me"}

    def test_enqueue_prints_the_receipt_and_says_that_the_message_waits(self) -> None:
        first = run("trigger", "shop::fail", "--queue", "default", "--dedupe-id", "a", "--json")
        second = run("trigger", "shop::fail", "--queue", "default", "--dedupe-id", "a", "--json")
        assert first.stdout == second.stdout
        assert list(json.loads(first.stdout)) == ["messageReceiptId"]
        assert "no host is running" in first.stderr
        assert answer("queues")[0]["visible"] == 1

    def test_a_delayed_message_is_counted_as_delayed(self) -> None:
        done("trigger", "shop::fail", "--queue", "default", "--delay", "900")
        assert answer("queues")[0]["delayed"] == 1

    def test_a_failed_call_is_exit_code_1_with_the_stack_of_the_handler(self) -> None:
        told = refused(1, "trigger", "shop::crash")
        assert "error: invocation_failed: 'missing'\n  function: shop::crash\n  Traceback" in told
        assert 'raise KeyError("missing")' in told

    def test_an_unknown_function_or_queue_says_where_to_look(self) -> None:
        assert "`iii-runtime functions`" in refused(1, "trigger", "shop::ech")
        told = refused(1, "trigger", "shop::echo", "--queue", "none")
        assert told.startswith("error: enqueue_error: ")
        assert "queue_not_found" in told
        assert "`iii-runtime queues`" in told

    @pytest.mark.parametrize(
        "arguments",
        [
            ("--payload", "{"),
            ("--payload", "@missing.json"),
            ("--payload", "1", "--event", "x.json"),
            ("--delay", "1"),
            ("--void", "--queue", "default"),
            ("--metadata", "[]"),
            ("--event", "missing.json"),
        ],
    )
    def test_what_cannot_be_meant_is_exit_code_2(self, arguments: tuple[str, ...]) -> None:
        assert "rror: " in refused(2, "trigger", "shop::echo", *arguments)


@pytest.mark.usefixtures("shop")
class TestEvents:
    def event(self, value: object) -> str:
        Path("event.json").write_text(json.dumps(value))
        return "event.json"

    def http(self, path: str) -> str:
        return self.event(
            {
                "version": "2.0",
                "rawPath": path,
                "rawQueryString": "a=1&a=2",
                "headers": {"content-type": "application/json"},
                "requestContext": {"http": {"method": "POST", "path": path}},
                "body": '{"x": 1}',
                "isBase64Encoded": False,
            }
        )

    def test_an_http_event_becomes_the_request_of_the_route(self) -> None:
        request = answer("trigger", "shop::echo", "--event", self.http("/echo/7"))["payload"]
        assert request == {
            "path": "/echo/:id",
            "method": "POST",
            "path_params": {"id": "7"},
            "query_params": {"a": "2"},
            "headers": {"content-type": "application/json"},
            "body": {"x": 1},
            "trigger": {"type": "http", "path": "/echo/:id", "method": "POST"},
            "caller": None,
        }

    def test_an_http_event_that_fits_no_route_of_the_function_is_refused(self) -> None:
        told = refused(1, "trigger", "shop::echo", "--event", self.http("/other"))
        assert "POST /echo/:id" in told

    def test_each_sqs_record_is_a_call(self) -> None:
        record = {"eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:eu-west-1:1:default"}
        records = [{**record, "messageId": body, "body": body} for body in ("1", "[2]")]
        printed = done("trigger", "shop::echo", "--json", "--event", self.event({"Records": records}))
        assert [json.loads(line)["payload"] for line in printed.splitlines()] == [1, [2]]

    def test_a_schedule_becomes_the_tick_of_the_functions_job(self) -> None:
        event = {"source": "aws.events", "detail-type": "Scheduled Event", "id": "e", "time": "2026-03-01T12:00:00Z"}
        tick = answer("trigger", "shop::echo", "--event", self.event({**event, "resources": []}))["payload"]
        assert tick["trigger"] == "cron"
        assert tick["job_id"] == "shop::echo|0 0 12 * * *|Europe/Berlin"
        assert tick["scheduled_time"] == "2026-03-01T12:00:00Z"

    def test_an_unknown_event_is_exit_code_2(self) -> None:
        assert "error: event_unknown: " in refused(2, "trigger", "shop::echo", "--event", self.event({}))
