"""The node's parameters: one table, checked into one frozen dataclass (no ROS import, so that tools can read it)."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flashdrive_ros.cameras import BY_NAME
from flashdrive_ros.errors import ParameterError
from flashdrive_ros.ros.topics import IMAGE_TRANSPORTS

Value = bool | int | float | str | tuple[str, ...]


@dataclass(frozen=True)
class ParameterSpec:
    """One row of the parameter table."""

    name: str
    kind: type
    """bool, int, float, str, or tuple for a list of names."""
    default: Value
    description: str
    minimum: float = -math.inf
    maximum: float = math.inf
    choices: tuple[str, ...] = ()
    """Allowed words of a str or tuple; empty when any word is."""


PARAMETERS: tuple[ParameterSpec, ...] = (
    ParameterSpec("model_path", str, "nano", "Folder of the model, or the name of one that ships with the package."),
    ParameterSpec(
        "cameras",
        tuple,
        ("cross_left", "front_wide", "cross_right", "front_tele"),
        "Cameras to plan from, by name, in any order.",
        choices=tuple(BY_NAME),
    ),
    ParameterSpec("image_transport", str, "compressed", "Kind of the image topics.", choices=IMAGE_TRANSPORTS),
    ParameterSpec("samples", int, 1, "Trajectories sampled per plan; the first one is driven.", 1, 64),
    ParameterSpec("seed", int, 0, "Seed of everything random in a plan.", 0, 2**31 - 1),
    ParameterSpec("threads", int, 2, "Threads of the engine backend.", 1, 256),
    ParameterSpec("autostart", bool, False, "Configure and activate without being asked to."),
    ParameterSpec(
        "camera_tolerance_s",
        float,
        0.05,
        "Largest distance in time of a camera's frame from the window it is used in.",
        0.001,
        0.1,
    ),
    ParameterSpec(
        "input_timeout_s", float, 0.5, "Silence of a camera or the odometry after which publishing stops.", 0.05, 60.0
    ),
    ParameterSpec(
        "plan_deadline_ms",
        float,
        200.0,
        "Time from complete window to plan above which a missed deadline is counted; 0 counts none.",
        0.0,
        60_000.0,
    ),
    ParameterSpec("base_frame", str, "base_link", "Frame of the rear axle centre on the ground."),
    ParameterSpec("publish_markers", bool, True, "Publish ~/output/markers when somebody listens."),
)
BY_PARAMETER_NAME: dict[str, ParameterSpec] = {spec.name: spec for spec in PARAMETERS}


@dataclass(frozen=True)
class NodeParameters:
    """The checked values; fields as in `PARAMETERS`."""

    model_path: str
    cameras: tuple[str, ...]
    image_transport: str
    samples: int
    seed: int
    threads: int
    autostart: bool
    camera_tolerance_s: float
    input_timeout_s: float
    plan_deadline_ms: float
    base_frame: str
    publish_markers: bool

    @property
    def camera_indices(self) -> tuple[int, ...]:
        """Alpamayo indices of `cameras`, ascending."""
        return tuple(sorted(BY_NAME[name].index for name in self.cameras))


def node_parameters(values: Mapping[str, Any]) -> NodeParameters:
    """Defaults overridden by `values`. Raises ParameterError for an unknown name or a bad value."""
    for name in values:
        check_name(name)
    checked: dict[str, Any] = {spec.name: check_value(spec, values.get(spec.name, spec.default)) for spec in PARAMETERS}
    return NodeParameters(**checked)


def check_name(name: str) -> None:
    """Raises ParameterError with the nearest known name when there is no parameter `name`."""
    if name not in BY_PARAMETER_NAME:
        near = difflib.get_close_matches(name, BY_PARAMETER_NAME, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(BY_PARAMETER_NAME))}"
        raise ParameterError(f"parameter {name}: there is no such parameter; {hint}")


def check_value(spec: ParameterSpec, value: Any) -> Any:
    """`value` in the type of `spec` (an int is taken for a float). Raises ParameterError naming the parameter."""
    if spec.kind is tuple:
        if not isinstance(value, (list, tuple)) or not value or not all(isinstance(item, str) for item in value):
            raise ParameterError(f"parameter {spec.name}: {value!r} is not a list of strings with at least one entry")
        repeated = sorted({item for item in value if list(value).count(item) > 1})
        if repeated:
            raise ParameterError(f"parameter {spec.name}: {', '.join(repeated)} is listed more than once")
        for item in value:
            _check_word(spec, item)
        return tuple(value)
    if spec.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, spec.kind) or isinstance(value, bool) != (spec.kind is bool):
        wanted = {str: "a string", float: "a number", int: "a whole number", bool: "true or false"}[spec.kind]
        raise ParameterError(f"parameter {spec.name}: {value!r} is not {wanted}")
    checked: Any = value
    if isinstance(value, str):
        if not value:
            raise ParameterError(f"parameter {spec.name}: must not be empty")
        _check_word(spec, value)
    elif spec.kind is not bool and not spec.minimum <= checked <= spec.maximum:  # a NaN fails both comparisons
        raise ParameterError(f"parameter {spec.name}: {value} is not in {spec.minimum:.10g} to {spec.maximum:.10g}")
    return checked


def _check_word(spec: ParameterSpec, word: str) -> None:
    if spec.choices and word not in spec.choices:
        raise ParameterError(f"parameter {spec.name}: {word!r} is not one of {', '.join(spec.choices)}")


def markdown_table() -> str:
    """The table of docs/parameters.md."""
    kinds = {tuple: "string[]", str: "string", float: "double", int: "int", bool: "bool"}
    rows = ["| name | type | default | range | meaning |", "|---|---|---|---|---|"]
    for spec in PARAMETERS:
        if spec.choices:
            allowed = ", ".join(spec.choices)
        elif spec.kind in (int, float):
            allowed = f"{spec.minimum:.10g} to {spec.maximum:.10g}"
        else:
            allowed = ""
        default = ", ".join(spec.default) if isinstance(spec.default, tuple) else str(spec.default)
        default = default.lower() if spec.kind is bool else default
        rows.append(f"| `{spec.name}` | {kinds[spec.kind]} | {default} | {allowed} | {spec.description} |")
    return "\n".join(rows) + "\n"
