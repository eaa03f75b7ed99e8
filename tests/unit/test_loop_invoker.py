"""How the `trigger` of a worker reaches the engine's loop."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import asyncio, signal, threading
from iii_runtime.core.trigger_request import TriggerRequest
from iii_runtime.hosts.loop_invoker import LoopInvoker

class Endless:
    async def trigger(self, request, caller):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

class Stop(BaseException):
    pass

def stop(*_):
    raise Stop

begun, ended = threading.Event(), threading.Event()
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
signal.signal(signal.SIGALRM, stop)
threading.Thread(target=lambda: (begun.wait(), signal.setitimer(signal.ITIMER_REAL, 0.05))).start()
try:
    LoopInvoker(Endless(), loop).trigger(TriggerRequest("a::b"))
except Stop:
    print("stopped")
print("cancelled", ended.wait(10))
"""


def test_what_a_body_asked_for_does_not_go_on_when_the_body_is_stopped() -> None:
    result = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.splitlines() == ["stopped", "cancelled True"]
