"""Bodies in a sandbox: one on the main thread, ended when its time is up; others beside it on threads or on its loop.

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
from iii_runtime.adapters.bodies import HandlerExitError
from iii_runtime.core.errors import DeadlineExceededError, FunctionBusyError
from iii_runtime.hosts.aws_lambda.executor import MainThreadExecutor

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


def in_a_process(code: str, *, exit_code: int = 0) -> list[str]:
    """Run code behind the prelude and return the lines it prints."""
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(code)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == exit_code, result.stderr
    return result.stdout.splitlines()


def test_bodies_of_both_kinds_run_on_the_main_thread() -> None:
    lines = in_a_process("""
        async def coroutine():
            return where()
        async def work():
            return [await run(where), await run(coroutine, is_async=True), await run(where)]
        print(serve(work()))
    """)
    assert lines == ["[True, True, True]"]


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


def test_an_asynchronous_body_that_blocks_the_loop_is_ended_and_the_next_one_runs_on_the_same_loop() -> None:
    lines = in_a_process("""
        import socket
        ends = socket.socketpair()
        began = time.monotonic()
        async def sleeps():
            time.sleep(60)
        async def receives():
            await asyncio.sleep(0)
            ends[0].recv(1)
        async def computes():
            while True:
                pass
        async def leaves_it_to_a_task():
            await asyncio.create_task(sleeps())
        async def leaves_it_to_a_callback():
            asyncio.get_running_loop().call_soon(time.sleep, 60)
            await asyncio.sleep(60)
        async def stubborn():
            for _ in range(2):
                try:
                    time.sleep(20)
                except BaseException:
                    pass
        async def healthy():
            await asyncio.sleep(0)
            return id(asyncio.get_running_loop())
        async def work():
            loops = {await run(healthy, is_async=True)}
            blocking = (sleeps, receives, computes, leaves_it_to_a_task, leaves_it_to_a_callback, stubborn)
            for body in blocking:
                try:
                    await run(body, SHORT, is_async=True)
                except DeadlineExceededError as error:
                    print(error)
                loops.add(await run(healthy, is_async=True))
            return len(loops), time.monotonic() - began < 20
        print(serve(work()))
    """)
    assert lines == ["no outcome within 0.2 s"] * 6 + ["(1, True)"]


def test_an_asynchronous_body_whose_time_is_up_is_cancelled_and_has_a_moment_to_clean_up() -> None:
    lines = in_a_process("""
        async def waits():
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.2)
                print("cleaned up")
        async def work():
            try:
                await run(waits, SHORT, is_async=True)
            except DeadlineExceededError as error:
                print(error)
        serve(work())
    """)
    assert lines == ["cleaned up", "no outcome within 0.2 s"]


def test_an_asynchronous_body_that_catches_its_cancellation_has_ended_before_the_next_one_runs_on_the_same_loop() -> (
    None
):
    lines = in_a_process("""
        ended = []
        def catches(times):
            async def body():
                try:
                    for _ in range(times):
                        try:
                            await asyncio.sleep(60)
                        except asyncio.CancelledError:
                            pass
                    return "late"
                finally:
                    ended.append(times)
            return body
        async def healthy():
            return list(ended), id(asyncio.get_running_loop())
        async def work():
            loops = set()
            for times in (1, 2):
                try:
                    await run(catches(times), SHORT, is_async=True)
                except DeadlineExceededError as error:
                    print(error)
                so_far, current = await run(healthy, is_async=True)
                loops.add(current)
                print(so_far)
            return len(loops)
        print(serve(work()))
    """)
    assert lines == ["no outcome within 0.2 s", "[1]", "no outcome within 0.2 s", "[1, 2]", "1"]


def test_a_body_that_comes_while_an_earlier_one_still_will_not_end_does_not_wait_for_it() -> None:
    lines = in_a_process("""
        async def stubborn():
            for _ in range(4):
                try:
                    time.sleep(20)
                except BaseException:
                    pass
        async def healthy():
            return "ran"
        async def work():
            try:
                await run(stubborn, SHORT, is_async=True)
            except DeadlineExceededError as error:
                print(error)
            return await run(healthy, is_async=True), await run(lambda: "ran")
        print(serve(work()))
    """)
    assert lines == ["no outcome within 0.2 s", "('ran', 'ran')"]


def test_a_body_that_waits_behind_what_an_earlier_one_left_is_not_begun_and_the_next_one_runs() -> None:
    lines = in_a_process("""
        begun = []
        async def blocks():
            time.sleep(60)
        async def leaves():
            asyncio.get_running_loop().call_soon(asyncio.ensure_future, blocks())
            return "in time"
        async def waits():
            begun.append("waits")
        async def runs():
            begun.append("runs")
            return begun
        async def work():
            print(await run(leaves, SHORT, is_async=True))
            try:
                await run(waits, SHORT, is_async=True)
            except FunctionBusyError as error:
                print(error.message)
            print(await run(runs, is_async=True))
        serve(work())
    """)
    assert lines == [
        "in time",
        "it did not begin within 0.2 s: what an earlier async handler left behind blocked the loop they share.",
        "['runs']",
    ]


def test_a_body_that_ended_in_time_has_its_value_whatever_blocks_the_loop_behind_it() -> None:
    lines = in_a_process("""
        async def body():
            asyncio.get_running_loop().call_soon(time.sleep, 60)
            return "in time"
        async def work():
            return await run(body, SHORT, is_async=True)
        serving = time.monotonic()
        print(serve(work()), time.monotonic() - serving < 10)
    """)
    assert lines == ["in time True"]


def test_an_asynchronous_body_inside_another_one_shares_its_loop_and_its_end() -> None:
    lines = in_a_process("""
        def current():
            return id(asyncio.get_running_loop())
        async def inner():
            return where(), current()
        async def outer():
            inside = asyncio.run_coroutine_threadsafe(run(inner, is_async=True), loop)
            beside = asyncio.run_coroutine_threadsafe(run(where), loop)
            return (where(), current()) == await asyncio.wrap_future(inside), await asyncio.wrap_future(beside)
        async def blocks():
            time.sleep(60)
        async def waits_for_it():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(blocks, is_async=True), loop))
        async def work():
            print(await run(outer, is_async=True))
            try:
                await run(waits_for_it, SHORT, is_async=True)
            except DeadlineExceededError:
                return await run(outer, is_async=True)
        print(serve(work()))
    """)
    assert lines == ["(True, False)", "(True, False)"]


def test_a_body_inside_another_one_that_cannot_begin_in_its_time_never_begins() -> None:
    lines = in_a_process("""
        async def brief():
            print("begun")
        async def outer():
            inside = asyncio.run_coroutine_threadsafe(run(brief, SHORT, is_async=True), loop)
            time.sleep(0.6)
            try:
                await asyncio.wrap_future(inside)
            except FunctionBusyError as error:
                return error.message
        async def work():
            return await run(outer, is_async=True)
        print(serve(work()))
    """)
    assert lines == ["it did not begin in its time: another async handler blocks the loop they share."]


DEAF = """
        def deaf():
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            time.sleep(60)
        async def deaf_async():
            deaf()
        async def never_cancelled_async():
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass
"""


@pytest.mark.parametrize("body", ["deaf", "deaf_async", "never_cancelled_async"])
def test_a_body_that_cannot_be_ended_takes_the_process_with_it_once_its_outcome_is_stored(body: str) -> None:
    lines = in_a_process(
        DEAF
        + f"""
        async def work():
            try:
                await run({body}, SHORT, is_async={body.endswith("async")})
            except DeadlineExceededError as error:
                print(error)
                await asyncio.sleep(0.3)
            print("stored")
            return "answer"
        print(serve(work()))
    """,
        exit_code=70,
    )
    assert lines == ["no outcome within 0.2 s", "stored"]


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
