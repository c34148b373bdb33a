"""What the node is doing, in a word and a sentence: the state of ~/status and /diagnostics (no ROS import)."""

from __future__ import annotations

from dataclasses import dataclass, field

from flashdrive_ros.reasons import Refusal
from flashdrive_ros.ros.input_watch import SilentInput

FRESH_PLAN_S = 1.0
"""A plan published this recently means that planning goes on, even when single windows are refused."""


@dataclass(frozen=True)
class Activity:
    """`state` is one of PlannerStatus' constants."""

    state: str
    detail: str
    """What is waited for or wrong, with the amounts; empty when nothing is."""


@dataclass(frozen=True)
class ActiveFacts:
    """What an active node knows about itself at one moment."""

    missing: list[str] = field(default_factory=list)
    """Inputs that never came."""
    silent: list[SilentInput] = field(default_factory=list)
    """Inputs that came and stopped."""
    failure: str = ""
    """The exception that ended the newest planning attempt; empty when it ended well."""
    held_back: Refusal | None = None
    """Why the newest window gave no plan; None when it did."""
    plan_published_ago_s: float | None = None
    """Steady time since the newest published plan; None before the first."""


def describe_active(facts: ActiveFacts) -> Activity:
    """The most important true thing about an active node."""
    if facts.silent:
        return Activity(
            "stale", ", ".join(f"{entry.name} silent for {entry.silence_s:.1f} s" for entry in facts.silent)
        )
    if facts.failure:
        return Activity("error", facts.failure)
    if facts.missing:
        return Activity("waiting", f"nothing received yet from {', '.join(facts.missing)}")
    if facts.plan_published_ago_s is not None and facts.plan_published_ago_s <= FRESH_PLAN_S:
        return Activity("planning", "")
    if facts.held_back is not None:
        return Activity("waiting", str(facts.held_back))
    if facts.plan_published_ago_s is not None:
        return Activity("stale", f"newest plan was published {facts.plan_published_ago_s:.1f} s ago")
    return Activity("waiting", "first complete window")
