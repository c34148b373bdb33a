"""The node's health as diagnostic_msgs."""

from __future__ import annotations

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from std_msgs.msg import Header

from flashdrive_ros.msg import PlannerStatus

LEVELS: dict[str, bytes] = {
    PlannerStatus.STATE_LOADING: DiagnosticStatus.OK,
    PlannerStatus.STATE_INACTIVE: DiagnosticStatus.OK,
    PlannerStatus.STATE_PLANNING: DiagnosticStatus.OK,
    PlannerStatus.STATE_WAITING: DiagnosticStatus.WARN,
    PlannerStatus.STATE_STALE: DiagnosticStatus.STALE,
    PlannerStatus.STATE_ERROR: DiagnosticStatus.ERROR,
}


def diagnostic_array(status: PlannerStatus, node_name: str, stamp: Time) -> DiagnosticArray:
    """One status named `<node>: planner` with the counts of every reason code."""
    values = [
        ("window_id", str(status.window_id)),
        ("plans_published", str(status.plans_published)),
        ("plan_age_s", f"{status.plan_age_s:.3f}"),
        ("plan_latency_ms", f"{status.plan_latency_ms:.1f}"),
        ("model", status.model),
        ("backend", status.backend),
        *((f"reason.{reason.code}", f"{reason.count}: {reason.last_detail}") for reason in status.reasons),
    ]
    message = f"{status.state}: {status.waiting_detail}" if status.waiting_detail else status.state
    return DiagnosticArray(
        header=Header(stamp=stamp),
        status=[
            DiagnosticStatus(
                level=LEVELS[status.state],
                name=f"{node_name}: planner",
                hardware_id=status.model,
                message=message,
                values=[KeyValue(key=key, value=value) for key, value in values],
            )
        ],
    )
