"""Bodies in a sandbox: one on the main thread, ended when its time is up; the others on threads.

Signals belong to the whole process, so what uses them runs in one of its own.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import Future
from datetime import timedelta

import pytest

from iii_runtime.core.errors import DeadlineExceededError
from iii_runtime.hosts.aws_lambda.executor import MainThreadExecutor

PRELUDE = """
import asyncio, contextvars, signal, sys, threading, time
from concurrent.futures import Future
from datetime import timedelta
from iii_runtime.adapters.threads import HandlerExitError
from iii_runtime.core.errors import DeadlineExceededError
from iii_runtime.hosts.aws_lambda.executor import MainThreadExecutor, TimeUp

LONG, SHORT = timedelta(seconds=30), timedelta(milliseconds=200)
executor = MainThreadExecutor()
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()

def serve(work):
    return executor.serve(lambda: asyncio.run_coroutine_threadsafe(work, loop))

def run(body, timeout=LONG, is_async=False):
    return executor.run(body, is_async=is_async, timeout=timeout)

def where():
    return threading.current_thread() is threading.main_thread()
"""


def in_a_process(code: str) -> list[str]:
    """Run code behind the prelude and return the lines it prints."""
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(code)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_a_synchronous_body_runs_on_the_main_thread_and_an_asynchronous_one_does_not() -> None:
    lines = in_a_process("""
        async def coroutine():
            return where()
        async def work():
            return [await run(where), await run(coroutine, is_async=True), await run(where)]
        print(serve(work()))
    """)
    assert lines == ["[True, False, True]"]


def test_a_body_beside_or_inside_another_one_runs_on_a_thread() -> None:
    lines = in_a_process("""
        def outer():
            return where(), asyncio.run_coroutine_threadsafe(run(where), loop).result()
        async def work():
            return await asyncio.gather(run(outer), run(where))
        print(serve(work()))
    """)
    assert lines == ["[(True, False), False]"]


def test_a_body_whose_time_is_up_is_ended_and_the_main_thread_serves_the_next_one() -> None:
    lines = in_a_process("""
        began = time.monotonic()
        def endless():
            try:
                while True:
                    pass
            finally:
                print("cleaned up")
        def sleeper():
            time.sleep(60)
        async def work():
            for body in (endless, sleeper):
                try:
                    await run(body, SHORT)
                except DeadlineExceededError as error:
                    print(error)
            return await run(where)
        print(serve(work()), time.monotonic() - began < 10)
    """)
    assert lines == ["cleaned up", "no outcome within 0.2 s", "no outcome within 0.2 s", "True True"]


def test_a_body_that_waits_for_a_call_is_ended_too() -> None:
    lines = in_a_process("""
        def waits():
            return Future().result()
        async def work():
            try:
                await run(waits, SHORT)
            except DeadlineExceededError:
                return "ended"
        print(serve(work()))
    """)
    assert lines == ["ended"]


def test_except_exception_does_not_keep_a_body_alive_and_catching_everything_does_not_help_it() -> None:
    lines = in_a_process("""
        def stubborn(kind):
            def body():
                for _ in range(3):
                    try:
                        time.sleep(20)
                    except kind:
                        pass
                return "went on"
            return body
        async def work():
            for kind in (Exception, BaseException):
                try:
                    print(await run(stubborn(kind), SHORT))
                except DeadlineExceededError:
                    print("too late")
        serve(work())
    """)
    assert lines == ["too late", "too late"]


def test_the_outcome_of_a_body_that_cannot_be_ended_is_known_all_the_same() -> None:
    """Such as one inside a library that never comes back to Python: here a mask of the signal stands for it."""
    lines = in_a_process("""
        def deaf():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            recorded.wait(30)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        recorded = threading.Event()
        async def work():
            try:
                await run(deaf, SHORT)
            except DeadlineExceededError:
                recorded.set()
                return "recorded while it still ran"
        print(serve(work()))
    """)
    assert lines == ["recorded while it still ran"]


def test_what_a_body_raises_comes_out_and_ends_nothing() -> None:
    lines = in_a_process("""
        def fails():
            raise ValueError("no")
        def exits():
            sys.exit(3)
        def times_out():
            raise TimeoutError("its own")
        async def work():
            for body in (fails, exits, times_out):
                try:
                    await run(body)
                except Exception as error:
                    print(type(error).__name__, error)
            return await run(where)
        print(serve(work()))
    """)
    assert lines == [
        "ValueError no",
        "HandlerExitError the handler raised SystemExit: 3",
        "TimeoutError its own",
        "True",
    ]


def test_a_body_sees_the_context_of_its_caller_and_changes_none_but_its_own() -> None:
    lines = in_a_process("""
        variable = contextvars.ContextVar("variable", default="unset")
        def body():
            seen = variable.get()
            variable.set("changed")
            return seen
        async def work():
            variable.set("of the caller")
            return await run(body), variable.get()
        print(serve(work()), variable.get())
    """)
    assert lines == ["('of the caller', 'of the caller') unset"]


def test_the_timer_and_the_signal_are_given_back() -> None:
    lines = in_a_process("""
        rings = []
        signal.signal(signal.SIGALRM, lambda *_: rings.append("mine"))
        async def work():
            await run(where, SHORT)
        serve(work())
        signal.raise_signal(signal.SIGALRM)
        print(rings, signal.getitimer(signal.ITIMER_REAL))
    """)
    assert lines == ["['mine'] (0.0, 0.0)"]


def test_an_invocation_that_fails_fails_where_it_is_served_and_the_next_one_is_served() -> None:
    lines = in_a_process("""
        async def fails():
            raise LookupError("this one")
        async def works():
            return await run(where)
        def breaks():
            raise OSError("not even started")
        for start in (lambda: asyncio.run_coroutine_threadsafe(fails(), loop), breaks):
            try:
                executor.serve(start)
            except (LookupError, OSError) as error:
                print(error)
        print(serve(works()))
    """)
    assert lines == ["this one", "not even started", "True"]


def test_work_that_is_faster_than_the_thread_that_starts_it_finds_that_thread_ready() -> None:
    lines = in_a_process("""
        def start():
            outcome = asyncio.run_coroutine_threadsafe(work(), loop)
            begun.wait(20)
            time.sleep(0.05)
            return outcome
        async def work():
            begun.set()
            return await run(where)
        begun = threading.Event()
        print(executor.serve(start))
    """)
    assert lines == ["True"]


def test_between_invocations_no_body_waits_for_the_main_thread() -> None:
    lines = in_a_process("""
        async def work():
            return await run(where)
        serve(work())
        print(asyncio.run_coroutine_threadsafe(run(where), loop).result(5))
    """)
    assert lines == ["False"]


async def test_without_a_main_thread_that_serves_bodies_run_on_threads() -> None:
    executor = MainThreadExecutor()
    thread = await executor.run(threading.current_thread, is_async=False, timeout=timedelta(seconds=20))
    assert thread is not threading.main_thread()
    with pytest.raises(DeadlineExceededError):
        await executor.run(threading.Event().wait, is_async=False, timeout=timedelta(milliseconds=20))
    executor.close()


def test_any_other_thread_that_serves_only_waits() -> None:
    executor = MainThreadExecutor()
    outcome: Future[str] = Future()
    served: list[str] = []
    thread = threading.Thread(target=lambda: served.append(executor.serve(lambda: outcome)))
    thread.start()
    outcome.set_result("done")
    thread.join(20)
    assert served == ["done"]
