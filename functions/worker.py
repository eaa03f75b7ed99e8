"""The worker every function of the pipeline registers with, and how a step reports its progress."""

from collections.abc import Iterator
from contextlib import contextmanager

from iii_runtime import Logger, NonRetryableError, StepTracker, current_invocation, register_worker

worker = register_worker(worker_name="orders")

track_step = StepTracker(worker, scope="orders", stream_name="order-progress").track
"""`track_step(order_id, step, status, detail)`: the order's state and a stream event, in one write."""

order_log = Logger()
"""Structured: each line carries the function, the receipt and the attempt it belongs to."""


def is_complete(order_id: str, step: str) -> bool:
    """Return whether an earlier delivery of the step's message got as far as completing the step.

    A message is delivered again if its host died after the work and before the acknowledgement. The order may be steps
    ahead by then, so such a delivery repeats neither work nor progress, only what passes the order on.
    """
    order = worker.trigger({"function_id": "state::get", "payload": {"scope": "orders", "key": order_id}})
    steps = order.get("steps", {}) if isinstance(order, dict) else {}
    return bool(steps.get(step, {}).get("status") == "complete")


@contextmanager
def failures_tracked(order_id: str, step: str) -> Iterator[None]:
    """Report an error inside the block and let it go on to the queue, which decides what follows.

    The step becomes `failed` if the error makes its message a dead letter, else `retrying`. A step that is killed or
    runs into its timeout reports nothing and stays `running`.
    """
    try:
        yield
    except Exception as error:
        status = "failed" if _is_last_attempt(error) else "retrying"
        order_log.warn(f"step {status}", {"order_id": order_id, "step": step, "error": str(error)})
        track_step(order_id, step, status, {"error": str(error)})
        raise


def _is_last_attempt(error: Exception) -> bool:
    invocation = current_invocation()
    return isinstance(error, NonRetryableError) or invocation is None or invocation.is_last_attempt
