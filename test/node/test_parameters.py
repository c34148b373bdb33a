"""The parameter table: its dataclass, its documentation, its profiles, and the values it takes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from flashdrive_ros.errors import ParameterError
from flashdrive_ros.ros.parameters import PARAMETERS, NodeParameters, markdown_table, node_parameters

REPOSITORY = Path(__file__).parents[2]


def test_the_table_and_the_dataclass_have_the_same_names():
    assert [spec.name for spec in PARAMETERS] == [field.name for field in fields(NodeParameters)]


def test_the_documentation_holds_the_table():
    assert markdown_table() in (REPOSITORY / "docs/parameters.md").read_text()


@pytest.mark.parametrize("file", sorted((REPOSITORY / "config").glob("*.yaml")), ids=lambda file: file.name)
def test_every_shipped_profile_is_accepted(file):
    values = yaml.safe_load(file.read_text())["/**"]["ros__parameters"]
    assert node_parameters(values).model_path == values["model_path"]


def test_an_int_is_taken_for_a_double():
    limit = node_parameters({"input_timeout_s": 1}).input_timeout_s
    assert (limit, type(limit)) == (1.0, float)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("input_timeout_s", True),
        ("input_timeout_s", "1.0"),
        ("input_timeout_s", None),
        ("input_timeout_s", float("inf")),
        ("samples", 0),
        ("samples", True),
        ("autostart", 1),
        ("model_path", ""),
        ("model_path", 5),
        ("cameras", []),
        ("cameras", [1, 2]),
        ("cameras", ["front_wide", "roof"]),
    ],
)
def test_a_bad_value_is_refused_in_one_line_that_names_the_parameter(name, value):
    with pytest.raises(ParameterError, match=f"^parameter {name}: ") as caught:
        node_parameters({name: value})
    assert "\n" not in str(caught.value)


def test_cameras_are_mapped_by_name_in_any_order():
    cameras = ["front_tele", "cross_left", "front_wide", "cross_right"]
    assert node_parameters({"cameras": cameras}).camera_indices == (0, 1, 2, 6)
