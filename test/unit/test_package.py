"""The package as others meet it: its manifests agree, its messages are there, and it carries nothing of one machine."""

from __future__ import annotations

import importlib
import re
import subprocess
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from catkin_pkg.package import parse_package
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import flashdrive_ros

REPOSITORY = Path(__file__).resolve().parents[2]
OWN_NAME = "flashdrive-ros"


def pyproject() -> dict[str, Any]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))


def package_xml() -> ElementTree.Element:
    return ElementTree.parse(REPOSITORY / "package.xml").getroot()


def pins() -> list[Requirement]:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line.split("  #")[0]) for line in lines if line and not line.startswith("#")]


def requirements() -> Iterator[Requirement]:
    """Everything that pyproject.toml asks for."""
    project = pyproject()
    groups = [
        project["build-system"]["requires"],
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    yield from (Requirement(entry) for group in groups for entry in group if isinstance(entry, str))


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this source tree is no git checkout")
    return [path for name in listed.stdout.split("\0") if name and (path := REPOSITORY / name).is_file()]


def test_ros_tools_accept_the_package_manifest() -> None:
    package = parse_package(str(REPOSITORY))
    package.validate()
    assert package.get_build_type() == "ament_cmake"
    assert [str(group) for group in package.member_of_groups] == ["rosidl_interface_packages"]


def test_licence_is_apache_wherever_it_is_stated() -> None:
    text = (REPOSITORY / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert package_xml().findtext("license") == "Apache-2.0"
    assert pyproject()["project"]["license"] == "Apache-2.0"


def test_version_is_the_same_wherever_it_is_stated() -> None:
    assert package_xml().findtext("version") == pyproject()["project"]["version"] == flashdrive_ros.__version__


def test_every_requirement_is_pinned_to_a_version_it_allows() -> None:
    for wanted in requirements():
        if canonicalize_name(wanted.name) == OWN_NAME:
            continue
        pinned = [pin for pin in pins() if canonicalize_name(pin.name) == canonicalize_name(wanted.name)]
        assert pinned, f"{wanted.name} has no line in constraints.txt"
        for pin in pinned:
            (exact,) = pin.specifier
            assert exact.operator == "==", pin
            assert wanted.specifier.contains(exact.version), f"{pin} is outside {wanted}"


def test_builds_with_and_without_an_environment_of_their_own_use_the_same_tools() -> None:
    assert pyproject()["build-system"]["requires"] == pyproject()["dependency-groups"]["build"]


def test_every_message_file_is_built() -> None:
    described = (REPOSITORY / "CMakeLists.txt").read_text(encoding="utf-8")
    present = sorted(path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob("msg/*.msg"))
    assert sorted(re.findall(r"msg/\w+\.msg", described)) == present


MESSAGE_FIELDS = {
    "TrajectoryPoint": "time_from_start pose speed_mps acceleration_mps2 curvature_radpm",
    "Trajectory": "header plan_id points",
    "Candidates": "header plan_id trajectories",
    "Reasoning": "header plan_id text token_count truncated",
    "ReasonCount": "code count last_detail",
    "PlannerStatus": "header state waiting_detail window_id plans_published reasons plan_age_s plan_latency_ms "
    "model backend",
    "StageTiming": "header plan_id preprocess_ms vision_ms prefill_ms draft_ms verify_ms action_ms total_ms "
    "verify_passes draft_tokens_accepted",
}


@pytest.mark.parametrize("name", MESSAGE_FIELDS)
def test_installed_message_has_the_fields_that_subscribers_rely_on(name: str) -> None:
    messages = importlib.import_module("flashdrive_ros.msg")
    assert list(getattr(messages, name).get_fields_and_field_types()) == MESSAGE_FIELDS[name].split()


def test_no_tracked_file_names_one_machine_or_a_registry() -> None:
    # Written with character classes so that this file does not contain what it looks for.
    forbidden = re.compile(
        r"(?<![\w.])/(wor[k]|roo[t]|far[m]|hom[e])/|[.]pyen[v]\b"
        r"|pyp[i][.]org|pythonhoste[d]|deb[.]debia[n]|registry[.]npmj[s]"
    )
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture, a bag or a model
        found = forbidden.search(text)
        assert found is None, f"{path.relative_to(REPOSITORY)}: {found.group() if found else ''}"
