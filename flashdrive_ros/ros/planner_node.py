"""The lifecycle node: parameters, topics and transitions around a `PlanningSession`."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from typing import Any

from rcl_interfaces.msg import SetParametersResult
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.clock import Clock
from rclpy.clock_type import ClockType
from rclpy.lifecycle import LifecycleNodeMixin, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.parameter import Parameter

from flashdrive_ros.errors import FlashdriveError, ParameterError
from flashdrive_ros.msg import PlannerStatus, ReasonCount
from flashdrive_ros.plan import Plan
from flashdrive_ros.ros import conversions
from flashdrive_ros.ros.activity import Activity, describe_active
from flashdrive_ros.ros.diagnostics import diagnostic_array
from flashdrive_ros.ros.inputs import InputCallbacks, InputSubscriptions
from flashdrive_ros.ros.node_parameters import check_changes, concerns_planner, declare_parameters, read_parameters
from flashdrive_ros.ros.outputs import PlanPublishers, ReportPublishers
from flashdrive_ros.ros.planning_session import PlannerFactory, PlanningSession, SessionNumbers, load_planner_of_package
from flashdrive_ros.ros.reason_log import ReasonSnapshot
from flashdrive_ros.ros.topics import NODE_NAME

STOP_TIMEOUT_S = 10.0
"""A plan in flight ends within this, or the planning thread is left behind and said so."""
STATUS_PERIOD_S = 0.1
DIAGNOSTICS_PERIOD_S = 1.0
CLOCK_PATIENCE_S = 3.0
"""With use_sim_time, /clock is missed aloud after this much wall time."""

SUCCESS = TransitionCallbackReturn.SUCCESS
FAILURE = TransitionCallbackReturn.FAILURE
ERROR = TransitionCallbackReturn.ERROR


class PlannerNode(LifecycleNodeMixin, Node):
    """`flashdrive_planner`; spin it with `executor.Spinning`.

    Callback groups: one reentrant group for the lifecycle services, so that get_state is answered while change_state
    waits for the planner to load; `intake_group` for every subscription and timer, which run in one thread, one at a
    time; rclpy's default group for the parameter services.
    """

    def __init__(self, planner_factory: PlannerFactory = load_planner_of_package, **node_arguments: Any) -> None:
        """Raises ParameterError for an unknown or ill-typed parameter override."""
        Node.__init__(self, NODE_NAME, automatically_declare_parameters_from_overrides=True, **node_arguments)
        self._transition_group = ReentrantCallbackGroup()
        LifecycleNodeMixin.__init__(self, callback_group=self._transition_group)
        self.intake_group = MutuallyExclusiveCallbackGroup()
        self._planner_factory = planner_factory
        self._session: PlanningSession | None = None
        self._subscriptions_of_session: InputSubscriptions | None = None
        self._publishers_of_session: PlanPublishers | None = None
        self._activity = Activity(PlannerStatus.STATE_INACTIVE, "not configured")
        self._is_active = False
        self._is_closing = False
        self._planner_left_behind = False
        self._started_s = time.monotonic()
        self._clock_missed = False
        try:
            autostart = declare_parameters(self).autostart
        except ParameterError:
            self.destroy_node()
            raise
        self.add_on_set_parameters_callback(self._on_set_parameters)
        self._reports = ReportPublishers(self)
        # Steady timers: status and diagnostics go on when simulated time stands still.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(STATUS_PERIOD_S, self._on_status_timer, callback_group=self.intake_group, clock=steady)
        self.create_timer(
            DIAGNOSTICS_PERIOD_S, self._on_diagnostics_timer, callback_group=self.intake_group, clock=steady
        )
        self._autostart_timer = (
            self.create_timer(0.0, self._on_autostart, callback_group=self._transition_group, clock=steady)
            if autostart
            else None
        )

    def close(self, timeout_s: float) -> bool:
        """Free everything when the executor has stopped; False when the planner is still busy after the time-out."""
        self._is_closing = True
        self._release(timeout_s)
        return not self._planner_left_behind

    def final_counts(self) -> dict[str, Any]:
        """Plans published and reason codes with counts, since activation."""
        status = self._status_message()
        return {
            "plans_published": status.plans_published,
            "reasons": {reason.code: reason.count for reason in status.reasons},
        }

    def cancel_loading(self) -> None:
        """Make a configure that is waiting for the planner fail soon; for a process that has been asked to end."""
        self._is_closing = True

    # Transitions. rclpy swallows exceptions of these callbacks, so each runs through `_transition`.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("configure", self._configure)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("activate", self._activate)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("deactivate", self._deactivate)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("cleanup", self._release)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        return self._transition("shutdown", self._release)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """After an unexpected exception: give up what there is, so that the node can be configured again."""
        return self._transition("error handling", self._release)

    def _transition(self, name: str, action: Callable[[], None]) -> TransitionCallbackReturn:
        try:
            action()
        except FlashdriveError as error:
            self._report_failed_transition(name, str(error))
            return FAILURE
        except Exception as error:
            self._report_failed_transition(name, f"{type(error).__name__}: {error}")
            self.get_logger().debug(traceback.format_exc())
            return ERROR
        self.get_logger().info(f"{name}: done")
        return SUCCESS

    def _report_failed_transition(self, name: str, cause: str) -> None:
        self.get_logger().error(f"{name} failed: {' '.join(cause.split())}")
        self._activity = Activity(PlannerStatus.STATE_ERROR, f"{name} failed: {cause}")

    def _configure(self) -> None:
        parameters = read_parameters(self)
        self._activity = Activity(PlannerStatus.STATE_LOADING, parameters.model_path)
        self.get_logger().info(f"loading {parameters.model_path}")
        session = PlanningSession(parameters, self._planner_factory, self._publish, self.get_logger())
        try:
            session.load(lambda: self._is_closing)
            self._session = session
            self._publishers_of_session = PlanPublishers(self)
            self._subscriptions_of_session = InputSubscriptions(
                self,
                parameters.cameras,
                parameters.image_transport,
                InputCallbacks(session.take_image, session.take_odometry, session.take_route),
                self.intake_group,
            )
        except Exception:
            self._session = session
            self._release(0.0 if self._is_closing else STOP_TIMEOUT_S)
            raise
        self._activity = Activity(PlannerStatus.STATE_INACTIVE, "configured")

    def _activate(self) -> None:
        self._current_session().activate()
        self._is_active = True

    def _deactivate(self) -> None:
        self._is_active = False
        self._current_session().deactivate()
        self._activity = Activity(PlannerStatus.STATE_INACTIVE, "configured")

    def _release(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        self._is_active = False
        session, self._session = self._session, None
        if self._subscriptions_of_session is not None:
            self._subscriptions_of_session.destroy()
            self._subscriptions_of_session = None
        if session is not None:
            self._planner_left_behind |= not session.close(timeout_s)
        if self._publishers_of_session is not None:
            self._publishers_of_session.destroy()
            self._publishers_of_session = None
        self._activity = Activity(PlannerStatus.STATE_INACTIVE, "not configured")

    def _current_session(self) -> PlanningSession:
        if self._session is None:
            raise FlashdriveError("the node is not configured")
        return self._session

    def _on_autostart(self) -> None:
        if self._autostart_timer is not None:
            self._autostart_timer.cancel()
        if self.trigger_configure() == SUCCESS:
            self.trigger_activate()

    # Outputs.

    def _publish(self, plan: Plan) -> None:
        session, publishers = self._session, self._publishers_of_session
        if session is not None and publishers is not None:
            publishers.publish(plan, session.parameters.base_frame, session.parameters.publish_markers)

    def _on_status_timer(self) -> None:
        self._check_clock()
        session = self._session
        if session is not None and self._is_active:
            session.check_inputs()
            activity = describe_active(session.facts())
            if activity.state != self._activity.state:
                self.get_logger().info(f"{activity.state}: {activity.detail}" if activity.detail else activity.state)
            self._activity = activity
        self._reports.status.publish(self._status_message())

    def _on_diagnostics_timer(self) -> None:
        stamp = self.get_clock().now().to_msg()
        self._reports.diagnostics.publish(
            diagnostic_array(self._status_message(), self.get_fully_qualified_name().lstrip("/"), stamp)
        )

    def _status_message(self) -> PlannerStatus:
        session = self._session
        numbers = SessionNumbers(0, 0, None, float("nan")) if session is None else session.numbers()
        reasons = ReasonSnapshot.empty() if session is None else session.reasons.snapshot()
        now_ns = self.get_clock().now().nanoseconds
        newest_t0_ns = numbers.newest_t0_ns
        return PlannerStatus(
            header=conversions.header(now_ns, self.get_parameter("base_frame").value),
            state=self._activity.state,
            waiting_detail=self._activity.detail,
            window_id=numbers.window_id,
            plans_published=numbers.plans_published,
            reasons=[
                ReasonCount(code=reason.value, count=count, last_detail=str(reasons.last[reason]))
                for reason, count in sorted(reasons.counts.items(), key=lambda item: item[0].value)
            ],
            plan_age_s=float("nan") if newest_t0_ns is None else (now_ns - newest_t0_ns) / 1e9,
            plan_latency_ms=numbers.newest_latency_ms,
            model="" if session is None else session.parameters.model_path,
            backend="" if session is None else session.backend,
        )

    def _check_clock(self) -> None:
        """Say once, in wall time, that simulated time was asked for and never comes."""
        if self._clock_missed or time.monotonic() - self._started_s < CLOCK_PATIENCE_S:
            return
        if self.get_parameter("use_sim_time").value and self.get_clock().now().nanoseconds == 0:
            self._clock_missed = True
            self.get_logger().warning(
                f"use_sim_time is set and nothing has come on /clock for {CLOCK_PATIENCE_S:g} s: "
                "start the clock's publisher or set use_sim_time to false"
            )

    # Parameters.

    def _on_set_parameters(self, changes: list[Parameter[Any]]) -> SetParametersResult:
        try:
            check_changes(changes)
        except ParameterError as error:
            return SetParametersResult(successful=False, reason=str(error))
        if self._session is not None and concerns_planner(changes):
            return SetParametersResult(
                successful=False, reason="parameters are read by configure: deactivate and clean up the node first"
            )
        return SetParametersResult(successful=True)
