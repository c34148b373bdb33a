"""The executor of the node, stopped so that no callback is running below it when it goes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from rclpy.executors import MultiThreadedExecutor

THREADS = 3
"""One for the intake, one for a lifecycle transition, one for every other service."""


class DrainedExecutor(MultiThreadedExecutor):
    """rclpy destroys its guard condition while callbacks still run; here they end first."""

    def __init__(self) -> None:
        super().__init__(THREADS)

    def shutdown(self, timeout_sec: float | None = None, **options: Any) -> bool:
        """Wait for the running callbacks, then shut down."""
        self._executor.shutdown(wait=True)
        return bool(super().shutdown(timeout_sec, **options))


def spin_until(stop: threading.Event, executor: MultiThreadedExecutor, log_error: Callable[[str], object]) -> None:
    """Run callbacks until `stop` is set and `wake` called; an exception that leaves a callback is logged."""
    while not stop.is_set():
        try:
            executor.spin_once()
        except Exception as error:  # noqa: PERF203 - raised by the callback of an earlier turn; the node goes on
            log_error(f"a callback failed: {type(error).__name__}: {error}")
            stop.wait(0.1)


def wake(executor: MultiThreadedExecutor) -> None:
    """Let `spin_until` look at its stop event: rclpy's own wake does not end a turn without work."""
    executor.create_task(lambda: None)
