"""The parameter table on a node: reading overrides, declaring, checking changes."""

from __future__ import annotations

from typing import Any

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.node import Node
from rclpy.parameter import Parameter

from flashdrive_ros.ros.parameters import (
    BY_PARAMETER_NAME,
    PARAMETERS,
    NodeParameters,
    ParameterSpec,
    check_name,
    check_value,
    node_parameters,
)

QOS_PREFIX = "qos_overrides."
OF_ROS = ("use_sim_time", "start_type_description_service")
"""Parameters that rclpy itself declares on every node."""


def declare_parameters(node: Node) -> NodeParameters:
    """Declare the table on a node that declared its overrides by itself, with the overrides as values.

    Raises ParameterError for an override that is not in the table or has a bad value.
    """
    given = {
        name: parameter.value
        for name, parameter in node.get_parameters_by_prefix("").items()
        if not name.startswith(QOS_PREFIX) and name not in OF_ROS
    }
    checked = node_parameters(given)
    for name in given:
        node.undeclare_parameter(name)
    for spec in PARAMETERS:
        value = getattr(checked, spec.name)
        value = list(value) if spec.kind is tuple else value
        node.declare_parameter(spec.name, value, _descriptor(spec), ignore_override=True)
    return checked


def read_parameters(node: Node) -> NodeParameters:
    """The table's current values, checked again. Raises ParameterError."""
    return node_parameters({spec.name: node.get_parameter(spec.name).value for spec in PARAMETERS})


def check_changes(changes: list[Parameter[Any]]) -> None:
    """Raises ParameterError when one of `changes` has a bad value; parameters of rclpy itself are let through."""
    for change in changes:
        if change.name.startswith(QOS_PREFIX) or change.name in OF_ROS:
            continue
        check_name(change.name)
        check_value(BY_PARAMETER_NAME[change.name], change.value)


def concerns_planner(changes: list[Parameter[Any]]) -> bool:
    """True when one of `changes` is in the table."""
    return any(change.name in BY_PARAMETER_NAME for change in changes)


def _descriptor(spec: ParameterSpec) -> ParameterDescriptor:
    descriptor = ParameterDescriptor(description=spec.description)
    if spec.choices:
        descriptor.additional_constraints = f"one of {', '.join(spec.choices)}"
    # Type and range are checked by the table (it also takes an int for a double); the ranges here are for tools.
    descriptor.dynamic_typing = True
    if spec.kind is float:
        descriptor.floating_point_range = [FloatingPointRange(from_value=spec.minimum, to_value=spec.maximum)]
    elif spec.kind is int:
        descriptor.integer_range = [IntegerRange(from_value=int(spec.minimum), to_value=int(spec.maximum))]
    return descriptor
