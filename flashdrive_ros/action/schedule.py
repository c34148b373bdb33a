"""Flow schedules as data: which steps of the time grid evaluate the network and what the others use (DESIGN 5).

On the grid t_i = i / n a step advances x by (t_(i+1) - t_i) * v_i. A step that does not evaluate uses a combination of
the velocities that were evaluated before it. Summed up between two evaluations, that is one lower-triangular matrix:
after evaluation j, x advances by sum_k weights[j, k] * v_k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashdrive_ros.errors import ParameterError


@dataclass(frozen=True)
class FlowSchedule:
    """One schedule."""

    name: str
    steps: int
    """Steps of the uniform grid from t = 0 to 1."""
    evaluated: tuple[int, ...]
    """Steps that evaluate the network, ascending, the first is 0."""
    coefficients: dict[int, tuple[float, ...]]
    """For each other step: weights of the velocities evaluated before it, oldest first."""
    provenance: str
    """Where evaluated steps and coefficients come from."""


def dense_schedule(steps: int) -> FlowSchedule:
    """Euler with every step evaluated."""
    return FlowSchedule(f"dense-{steps}", steps, tuple(range(steps)), {}, "Euler, every step evaluated")


def flow_tables(schedule: FlowSchedule) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """`flow_times` [m] and `flow_weights` [m, m] of a schedule with m evaluations.

    Raises ParameterError naming the schedule when it does not evaluate step 0, is not ascending, or lacks coefficients.
    """
    steps, evaluated = schedule.steps, schedule.evaluated
    if not evaluated or evaluated[0] != 0 or list(evaluated) != sorted(set(evaluated)) or evaluated[-1] >= steps:
        raise ParameterError(
            f"flow schedule {schedule.name}: evaluated steps {evaluated}, expected ascending from 0 below {steps}"
        )
    weights = np.zeros((len(evaluated), len(evaluated)), np.float64)
    for step in range(steps):
        latest = int(np.searchsorted(evaluated, step, side="right")) - 1
        if step == evaluated[latest]:
            weights[latest, latest] += 1 / steps
            continue
        combination = schedule.coefficients.get(step, ())
        if len(combination) != latest + 1:
            raise ParameterError(
                f"flow schedule {schedule.name}: step {step} has {len(combination)} coefficients, {latest + 1} expected"
            )
        weights[latest, : latest + 1] += np.asarray(combination) / steps
    times = np.asarray(evaluated, np.float64) / steps
    return times.astype(np.float32), weights.astype(np.float32)
