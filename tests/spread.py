"""How `make test` shares the tests out: file by file, a folder that shares what is costly as one, long ones first.

xdist takes the places with the most tests first, which says little of their time: at the end one process would wait for
the other, that has begun with a minute of one test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

FOLDERS = ("tests/infra", "tests/lambda_runtime")
"""Each stays together: its apps are synthesised once, its bundle is in one place."""

LONG = (
    "tests/infra",
    "tests/unit/test_aws_queue_crashes.py",
    "tests/lambda_runtime",
    "tests/host/test_aws_crashes.py",
    "tests/host/test_kill.py",
    "tests/host/test_dev.py",
    "tests/protocol/test_sqs_protocol.py",
    "tests/host/test_lambda_process.py",
    "tests/protocol/test_queue_protocol.py",
    "tests/host/test_cli_stage.py",
    "tests/host/test_aws_roles.py",
    "tests/unit/test_lambda_executor.py",
    "tests/protocol/test_adapters_follow_the_model.py",
    "tests/host/test_cli_stage_aws.py",
    "tests/property/test_hand_made_items.py",
    "tests/protocol/test_sqs_traces.py",
    "tests/host/test_demo.py",
)
"""What takes longest, a quarter of a minute or more, in this order. See `--durations=40`."""


class Spread(LoadFileScheduling):  # type: ignore[misc]
    """Gives each process a place, of `LONG` as long as there is one, and another one when little of it is left."""

    def _split_scope(self, nodeid: str) -> str:
        return place_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        for place in LONG:
            if place in self.workqueue:
                self.workqueue.move_to_end(place, last=False)
                break
        super()._assign_work_unit(node)


def place_of(nodeid: str) -> str:
    """Return the folder or file whose tests stay together with a test."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in FOLDERS if file.startswith(f"{folder}/")), file)
