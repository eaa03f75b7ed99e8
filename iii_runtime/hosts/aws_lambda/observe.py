"""What a Lambda tells of itself: log lines as JSON, and measurements in CloudWatch's embedded metric format."""

from __future__ import annotations

import copy
import json
import logging
import sys
from collections.abc import Callable
from typing import TextIO

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.formatter import RESERVED_LOG_ATTRS, LambdaPowertoolsFormatter
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers

from iii_runtime.core.logger import LOGGER_NAME
from iii_runtime.core.message import printable
from iii_runtime.plan.names import Deployment
from iii_runtime.ports.meter import MetricName

NAMESPACE = "iii"
"""Namespace of the runtime's metrics. Their dimensions are `App` and `Stage`; and once more these with `Function` or
`Queue`, where it is known what a measurement is about."""

_OURS = ("iii_runtime", LOGGER_NAME.partition(".")[0])
_UNSHOWN = frozenset({*RESERVED_LOG_ATTRS, "taskName", "message"})


class LogLine(LambdaPowertoolsFormatter):
    """A log line as JSON, with what the runtime knows about it (function, receipt, attempt, trace) as members."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        shown = copy.copy(record)
        fields: dict[str, object] = shown.__dict__.pop("iii", {})
        shown.__dict__.pop("taskName", None)
        shown.__dict__.update({name: value for name, value in fields.items() if name not in _UNSHOWN})
        # In JSON the escape of what UTF-8 cannot write is read as what it stands for.
        return printable(super().format(shown))


def start_logging(service: str, level: str, *, stream: TextIO | None = None) -> Logger:
    """Write the lines of the runtime and of the functions' `Logger` as JSON; returns the logger that adds members.

    Args:
        service: Member `service` of every line: the function's id, or the role of the runtime's own Lambda.
        level: Lowest level that is written.
        stream: Where to; by default standard output, which Lambda keeps.
    """
    line = LogLine(log_record_order=["level", "timestamp", "message"], utc=True, use_rfc3339=True)
    line.remove_keys(["location"])
    logger = Logger(service=service, level=level, logger_formatter=line, stream=stream)
    for name in _OURS:
        logging.getLogger(name)  # known from now on, also if nothing has been logged yet
    copy_config_to_registered_loggers(logger, include=set(_OURS))
    return logger


class EmfMeter:
    """Writes each measurement as a line in CloudWatch's embedded metric format.

    Args:
        deployment: App and stage, the dimensions of every metric.
        write: Takes a line; standard output by default.
    """

    def __init__(self, deployment: Deployment, write: Callable[[str], object] | None = None) -> None:
        self._always = {"App": deployment.app, "Stage": deployment.stage}
        self._write = write or _to_stdout

    def add(
        self, name: MetricName, value: float = 1, *, function_id: str | None = None, queue: str | None = None
    ) -> None:
        """Add a measurement: to the total of app and stage, and to the number of the function or queue it is about."""
        # Loaded here: nothing is measured while everything goes well.
        from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (  # noqa: PLC0415
            AmazonCloudWatchEMFProvider,
        )

        metrics = AmazonCloudWatchEMFProvider(namespace=NAMESPACE, default_dimensions=self._always)
        metrics.service = ""  # its dimension would make another metric of it
        metrics.add_metric(name, unit="Milliseconds" if name == "FeedLag" else "Count", value=value)
        about = {"Function": function_id} if function_id is not None else {"Queue": queue}
        for dimension, subject in about.items():
            if subject is not None:
                metrics.add_dimensions(**{dimension: subject})
        self._write(json.dumps(metrics.serialize_metric_set()))


def _to_stdout(line: str) -> None:
    sys.stdout.write(f"{line}\n")
