"""What every test may use: paths, hypothesis settings, and a visible skip where a test's surroundings are missing.

Markers are declared in pyproject.toml.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parents[1]

# Nothing that a test publishes leaves this machine, and two test runs on it do not hear each other.
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ.setdefault("ROS_DOMAIN_ID", str(os.getpid() % 100 + 1))

# A slow machine is not a failure, and a run can be repeated.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the source tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of public data sets: `data` in $FLASHDRIVE_SHARED or in a folder `shared` beside the repository."""
    shared = Path(os.environ.get("FLASHDRIVE_SHARED", REPOSITORY.parent / "shared"))
    if not (shared / "data").is_dir():
        pytest.skip(f"the public data sets are not in {shared / 'data'}; FLASHDRIVE_SHARED names another folder")
    return shared / "data"


def ros_launch_is_installed() -> bool:
    """True with the real ROS 2 `launch`; this repository's own launch/ folder also imports under that name."""
    try:
        return all(find_spec(name) is not None for name in ("launch.launch_description", "launch_ros.actions"))
    except ModuleNotFoundError:
        return False


class NeedsRosLaunch(pytest.Module):
    """A test module that imports `launch` at its top, where there is none: reported as skipped, never imported."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip("needs ROS 2's launch and launch_ros, which no wheel provides", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Everything in test/launch is written for the real `launch`."""
    if module_path.parent == REPOSITORY / "test" / "launch" and not ros_launch_is_installed():
        return NeedsRosLaunch.from_parent(parent, path=module_path)
    return None
