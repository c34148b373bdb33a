"""How the node is spun: one thread for everything that is taken in, a pool for the services.

rclpy's multi-threaded executor hands every callback to another thread and prefers the first ready entity of an
exclusive group. With a planner on every core those hand-overs cost milliseconds each, and the odometry behind four
cameras starved. So the intake has a single-threaded executor of its own, which takes one message of every ready
topic in turn. Services stay in a pool: get_state is answered there while change_state waits for the planner.
"""

from __future__ import annotations

import threading
from typing import Any

from rclpy.callback_groups import CallbackGroup
from rclpy.executors import Executor, MultiThreadedExecutor, SingleThreadedExecutor
from rclpy.node import Node

SERVICE_THREADS = 2
"""One for a lifecycle transition, one for every other service."""


class IntakeExecutor(SingleThreadedExecutor):
    """Runs the callbacks of one group of a node that another executor owns."""

    def __init__(self, node: Node, group: CallbackGroup) -> None:
        super().__init__()
        self._node = node
        self.group = group

    def get_nodes(self) -> list[Node]:
        return [self._node]  # not added: a node that is added to an executor leaves the one it was in

    def can_execute(self, entity: Any) -> bool:
        return entity.callback_group is self.group and bool(super().can_execute(entity))


class ServiceExecutor(MultiThreadedExecutor):
    """Owns the node and runs every callback that the intake's executor does not."""

    def __init__(self, intake: IntakeExecutor) -> None:
        super().__init__(SERVICE_THREADS)
        self._intake = intake

    def can_execute(self, entity: Any) -> bool:
        return entity.callback_group is not self._intake.group and bool(super().can_execute(entity))

    def wake(self) -> None:
        """The node tells only this executor of a new subscription or timer; it may be for the other one."""
        super().wake()
        self._intake.wake()

    def shutdown(self, timeout_sec: float | None = None, **options: Any) -> bool:
        """rclpy destroys its guard condition while callbacks still run; here they end first."""
        self._executor.shutdown(wait=True)
        return bool(super().shutdown(timeout_sec, **options))


class Spinning:
    """Two threads that run a node's callbacks until `stop`."""

    def __init__(self, node: Node, intake_group: CallbackGroup) -> None:
        self._log_error = node.get_logger().error
        self._stop = threading.Event()
        intake = IntakeExecutor(node, intake_group)
        services = ServiceExecutor(intake)
        services.add_node(node)
        self._executors: dict[str, Executor] = {"intake": intake, "services": services}
        self._threads = [
            threading.Thread(target=self._spin, args=(executor,), name=name)
            for name, executor in self._executors.items()
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Return when no callback is running and none will run any more."""
        self._stop.set()
        for executor in self._executors.values():
            executor.create_task(lambda: None)  # a turn of rclpy's ends only with work
        for thread in self._threads:
            thread.join()
        for executor in self._executors.values():
            executor.shutdown()

    def _spin(self, executor: Executor) -> None:
        logged = ""
        while not self._stop.is_set():
            try:
                executor.spin_once()
            except Exception as error:  # left a callback; the node goes on
                text = f"a callback failed: {type(error).__name__}: {error}"
                if text != logged:
                    self._log_error(text)
                logged = text
                self._stop.wait(0.1)
