"""The one dashboard of a stage: a row for each queue, a row for each Lambda."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from iii_runtime.plan.app_plan import AppPlan, PlannedFunction, PlannedQueue
from iii_runtime.plan.names import Deployment

Widget: TypeAlias = Mapping[str, Any]

MOST_WIDGETS = 500
MOST_METRICS = 2500
"""What CloudWatch allows on one dashboard."""

_HEIGHT = 5
_WIDTH = 24
_PERIOD_S = 60


def add_dashboard(scope: Construct, plan: AppPlan, api_id: str) -> cloudwatch.CfnDashboard:
    """Create the dashboard."""
    queues = [_queue_row(queue) for _, queue in sorted(plan.queues.items())]
    functions = [_function_row(function) for function in _ordered(plan)]
    rows = _fitted([_totals(plan.deployment, api_id), *queues, *functions])
    body = {"widgets": [widget for number, row in enumerate(rows) for widget in _placed(row, number)]}
    return cloudwatch.CfnDashboard(
        scope,
        "Dashboard",
        dashboard_name=plan.deployment.prefix,
        dashboard_body=cdk.Stack.of(scope).to_json_string(body),
    )


def dashboard_url(deployment: Deployment) -> str:
    """Return the address of the dashboard in the console."""
    region = deployment.region
    return (
        f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}#dashboards/dashboard/"
        f"{deployment.prefix}"
    )


def _fitted(rows: Sequence[Sequence[Widget]]) -> Sequence[Sequence[Widget]]:
    """Return the rows with as many widgets of each as a dashboard has room for, the first ones first."""
    for width in (4, 3, 2, 1):
        shortened = [row[:width] for row in rows]
        widgets = [widget for row in shortened for widget in row]
        metrics = sum(len(widget["properties"]["metrics"]) for widget in widgets)
        if len(widgets) <= MOST_WIDGETS and metrics <= MOST_METRICS:
            return shortened
    return [row[:1] for row in rows[:MOST_WIDGETS]]


def _ordered(plan: AppPlan) -> list[PlannedFunction]:
    """Return the functions by their ids, then the runtime's own."""
    return sorted(plan.functions.values(), key=lambda each: (each.function_id is None, each.function_id or each.name))


def _totals(names: Deployment, api_id: str) -> list[Widget]:
    own = ["iii", "App", names.app, "Stage", names.stage]
    return [
        _graph(
            "failed runs, attempts and dead letters",
            [_own(own, name) for name in ("FunctionErrors", "FailedAttempts", "DeadLetters", "TooManyHops")],
        ),
        _graph("skipped ticks", [_own(own, "SkippedTicks")]),
        _graph("http", [["AWS/ApiGateway", name, "ApiId", api_id] for name in ("Count", "4xx", "5xx")]),
        _graph(
            "change feed, age in ms",
            [["AWS/Lambda", "IteratorAge", "FunctionName", names.system_name("feed")]],
            statistic="Maximum",
        ),
    ]


def _own(dimensions: Sequence[str], name: str) -> list[str]:
    return [dimensions[0], name, *dimensions[1:]]


def _queue_row(queue: PlannedQueue) -> list[Widget]:
    name = queue.spec.name
    return [
        _graph(f"{name}: age of the oldest message, s", [_sqs("ApproximateAgeOfOldestMessage", queue)], "Maximum"),
        _graph(f"{name}: waiting", [_sqs("ApproximateNumberOfMessagesVisible", queue)], "Maximum"),
        _graph(f"{name}: in work", [_sqs("ApproximateNumberOfMessagesNotVisible", queue)], "Maximum"),
        _graph(
            f"{name}: dead letters",
            [["AWS/SQS", "ApproximateNumberOfMessagesVisible", "QueueName", queue.letter_name]],
            "Maximum",
        ),
    ]


def _function_row(function: PlannedFunction) -> list[Widget]:
    title = function.function_id or f"runtime: {function.role}"
    about = ["FunctionName", function.name]
    counted = ("Invocations", "Errors", "Throttles", *(("AsyncEventsDropped",) if function.takes_events else ()))
    return [
        _graph(f"{title}: invocations", [["AWS/Lambda", name, *about] for name in counted]),
        _graph(
            f"{title}: duration, ms",
            [["AWS/Lambda", "Duration", *about, {"stat": each}] for each in ("p50", "p99", "Maximum")],
        ),
        _graph(f"{title}: at the same time", [["AWS/Lambda", "ConcurrentExecutions", *about]], "Maximum"),
    ]


def _sqs(metric: str, queue: PlannedQueue) -> list[str]:
    return ["AWS/SQS", metric, "QueueName", queue.name]


def _graph(title: str, metrics: Sequence[Sequence[object]], statistic: str = "Sum") -> Widget:
    return {
        "type": "metric",
        "properties": {
            "title": title,
            "metrics": metrics,
            "stat": statistic,
            "period": _PERIOD_S,
            "region": str(cdk.Aws.REGION),
            "view": "timeSeries",
            "yAxis": {"left": {"min": 0}},
        },
    }


def _placed(row: Sequence[Widget], number: int) -> list[Widget]:
    width = _WIDTH // len(row)
    return [
        {**widget, "x": at * width, "y": number * _HEIGHT, "width": width, "height": _HEIGHT}
        for at, widget in enumerate(row)
    ]
