"""An asyncio loop in a thread of its own, beside a test that waits for guests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
ANSWER_SECONDS_MAX = 10.0


class LoopThread:
    """What fails in it, unseen by any caller, is raised when it is stopped: a network that broke makes no test pass."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._failures: list[str] = []
        self.loop.set_exception_handler(self._failed)
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(ANSWER_SECONDS_MAX)

    def call(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return self.run(called())

    def soon(self, function: Callable[[], None]) -> None:
        self.loop.call_soon_threadsafe(function)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(ANSWER_SECONDS_MAX)
        self.loop.close()
        if self._failures:
            raise RuntimeError("the network failed: " + "; ".join(self._failures))

    def _failed(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._failures.append(f"{context['message']}: {context.get('exception')!r}")
