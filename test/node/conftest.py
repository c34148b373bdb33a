"""Real rclpy over real DDS, on a domain and in namespaces of this test session's own."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

import pytest

# Test modules are imported one by one (importlib mode), so their helpers are found through the path.
sys.path.insert(0, str(Path(__file__).parent))
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ["ROS_DOMAIN_ID"] = str(os.getpid() % 100 + 1)

_numbers = itertools.count()


@pytest.fixture(scope="session")
def ros():
    """An initialised rclpy."""
    rclpy = pytest.importorskip("rclpy")
    from rclpy.signals import SignalHandlerOptions

    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    yield rclpy
    rclpy.shutdown()


@pytest.fixture
def probe(ros):
    """A client node in a namespace of its own."""
    from node_helpers import Probe

    probe = Probe(f"/test_{next(_numbers)}")
    yield probe
    probe.close()


@pytest.fixture
def start_planner(probe):
    """Starts planner nodes in the probe's namespace and ends them."""
    from node_helpers import start_planner

    started = []

    def start(factory, **parameters):
        spinning = start_planner(probe.namespace, factory, **parameters)
        started.append(spinning)
        return spinning.node

    yield start
    for spinning in started:
        spinning.close()
