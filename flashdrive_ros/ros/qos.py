"""QoS profiles of the node's topics, their override parameters, and what to do about incompatible endpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSPolicyKind,
    QoSProfile,
    ReliabilityPolicy,
    qos_policy_name_from_kind,
)
from rclpy.qos_overriding_options import QoSOverridingOptions

ODOMETRY_DEPTH = 400
"""2 s of odometry at 200 Hz."""


IMAGE_DEPTH = {"compressed": 15, "raw": 5}
"""Half a second at 30 Hz where images are small; raw ones of 6 MB would fill the memory of a small machine."""


def image_qos(transport: str) -> QoSProfile:
    """Best effort receives from reliable and best-effort cameras. `transport` is one of `topics.IMAGE_TRANSPORTS`."""
    return _profile(IMAGE_DEPTH[transport], ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE)


def odometry_qos() -> QoSProfile:
    """Deep, so that a late executor loses none of the ego history."""
    return _profile(ODOMETRY_DEPTH, ReliabilityPolicy.BEST_EFFORT, DurabilityPolicy.VOLATILE)


def route_qos() -> QoSProfile:
    """Latched: the newest route arrives whenever the node starts."""
    return _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.TRANSIENT_LOCAL)


def plan_qos() -> QoSProfile:
    """Reliable, and only the newest: an old trajectory is worth nothing."""
    return _profile(1, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)


def report_qos() -> QoSProfile:
    """For readers that want every sample: reasoning, timing, status, diagnostics."""
    return _profile(10, ReliabilityPolicy.RELIABLE, DurabilityPolicy.VOLATILE)


def override_options() -> QoSOverridingOptions:
    """Declares `qos_overrides.<topic>.<subscription|publisher>.{history,depth,reliability,durability}`."""
    return QoSOverridingOptions(
        [QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY, QoSPolicyKind.DURABILITY]
    )


def subscription_events(topic: str, log: Callable[[str], object]) -> SubscriptionEventCallbacks:
    """Log a publisher whose QoS the subscription cannot receive."""

    def incompatible(event: Any) -> None:
        log(f"{topic}: a publisher's {_policy(event)} does not fit; nothing is received from it (see qos_overrides)")

    return SubscriptionEventCallbacks(incompatible_qos=incompatible)


def publisher_events(topic: str, log: Callable[[str], object]) -> PublisherEventCallbacks:
    """Log a subscriber whose QoS the publisher cannot serve."""

    def incompatible(event: Any) -> None:
        log(f"{topic}: a subscriber's {_policy(event)} does not fit; it receives nothing (see qos_overrides)")

    return PublisherEventCallbacks(incompatible_qos=incompatible)


def _policy(event: Any) -> str:
    return str(qos_policy_name_from_kind(event.last_policy_kind))


def _profile(depth: int, reliability: ReliabilityPolicy, durability: DurabilityPolicy) -> QoSProfile:
    return QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=depth, reliability=reliability, durability=durability)
