"""Jobs on threads of their own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Iterator

import pytest

from iii_runtime.hosts.aws_lambda.parallel import ThreadParallel
from iii_runtime.ports.parallel import Job

LIMIT = 4
WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")


@pytest.fixture
def parallel() -> Iterator[ThreadParallel]:
    made = ThreadParallel(LIMIT)
    yield made
    made.close()


async def test_results_come_in_the_order_of_the_jobs(parallel: ThreadParallel) -> None:
    async def work(number: int) -> int:
        return number

    assert await parallel.run([lambda number=number: work(number) for number in range(20)]) == list(range(20))  # type: ignore[misc]
    none: list[Job[None]] = []
    assert await parallel.run(none) == []


async def test_jobs_that_block_go_on_at_the_same_time(parallel: ThreadParallel) -> None:
    """Each waits for all the others: none would end if they ran one after another."""
    barrier = threading.Barrier(LIMIT, timeout=10)

    async def block() -> int:
        return barrier.wait()

    assert sorted(await parallel.run([block] * LIMIT)) == list(range(LIMIT))


async def test_a_single_job_runs_where_it_is_asked_for(parallel: ThreadParallel) -> None:
    async def thread() -> int:
        return threading.get_ident()

    assert await parallel.run([thread]) == [threading.get_ident()]
    assert threading.get_ident() not in await parallel.run([thread, thread])


async def test_the_first_error_is_raised_after_all_have_ended(parallel: ThreadParallel) -> None:
    ended: list[str] = []
    failed = threading.Event()

    async def fail(what: str) -> None:
        ended.append(what)
        failed.set()
        raise ValueError(what)

    async def wait() -> None:
        failed.wait(10)
        ended.append("waited")

    with pytest.raises(ValueError, match="first"):
        await parallel.run([wait, lambda: fail("first"), wait, lambda: fail("second")])
    assert sorted(ended) == ["first", "second", "waited", "waited"]


async def test_a_job_has_the_context_of_whoever_asked_for_it(parallel: ThreadParallel) -> None:
    async def who() -> str:
        return WHO.get()

    WHO.set("caller")
    assert await parallel.run([who, who]) == ["caller", "caller"]
