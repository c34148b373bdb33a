"""The lifecycle of the node, driven by a real client."""

from __future__ import annotations

import threading
import time

from fake_planner import FakePlanner, refuse_missing_model
from flashdrive_ros.msg import PlannerStatus
from node_helpers import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, UNCONFIGURED_SHUTDOWN, wait_for


def test_the_states_follow_the_transitions_and_a_second_configure_works(probe, start_planner):
    start_planner(lambda parameters: FakePlanner())
    assert probe.state() == "unconfigured"
    for _ in range(2):
        assert probe.change_state(CONFIGURE)
        assert probe.state() == "inactive"
        assert probe.change_state(ACTIVATE)
        assert probe.state() == "active"
        assert probe.change_state(DEACTIVATE)
        assert probe.state() == "inactive"
        assert probe.change_state(CLEANUP)
        assert probe.state() == "unconfigured"
    assert probe.change_state(UNCONFIGURED_SHUTDOWN)
    assert probe.state() == "finalized"


def test_get_state_is_answered_while_configure_waits_for_a_slow_planner(probe, start_planner):
    def load_slowly(parameters):
        time.sleep(3.0)
        return FakePlanner()

    start_planner(load_slowly)
    assert probe.state() == "unconfigured"
    statuses = probe.collect(PlannerStatus, "~/status")
    answer = probe.start_transition(CONFIGURE)
    wait_for(lambda: probe.state() == "configuring", "the state configuring", timeout_s=2.0)
    asked_s = time.monotonic()
    assert probe.state() == "configuring"
    assert time.monotonic() - asked_s < 1.0
    wait_for(lambda: [s for s in statuses if s.state == "loading"], "the status loading", timeout_s=2.0)
    assert not answer.done()
    assert wait_for(lambda: answer.done() and answer.result(), "the end of configure").success
    assert probe.state() == "inactive"


def test_a_second_configure_during_the_first_is_refused_and_leaves_it_alone(probe, start_planner):
    gate = threading.Event()
    start_planner(lambda parameters: FakePlanner(load_gate=gate))
    first = probe.start_transition(CONFIGURE)
    wait_for(lambda: probe.state() == "configuring", "the state configuring")
    assert not probe.change_state(CONFIGURE)
    gate.set()
    assert wait_for(lambda: first.done() and first.result(), "the first configure").success
    assert probe.state() == "inactive"


def test_a_missing_model_is_reported_and_configure_works_once_the_parameter_is_mended(probe, start_planner):
    start_planner(refuse_missing_model, model_path="/no/such/model")
    statuses = probe.collect(PlannerStatus, "~/status")
    assert not probe.change_state(CONFIGURE)
    assert probe.state() == "unconfigured"
    wait_for(
        lambda: [s for s in statuses if s.state == "error" and "/no/such/model" in s.waiting_detail],
        "a status that names the missing model",
    )
    assert probe.set_parameter("model_path", "nano").successful
    assert probe.change_state(CONFIGURE)
    assert probe.state() == "inactive"


def test_an_unexpected_exception_in_configure_leaves_a_node_that_can_be_configured_again(probe, start_planner):
    attempts = []

    def fail_once(parameters):
        attempts.append(parameters)
        if len(attempts) == 1:
            raise ZeroDivisionError("unforeseen")
        return FakePlanner()

    start_planner(fail_once)
    assert not probe.change_state(CONFIGURE)
    assert probe.state() == "unconfigured"
    assert probe.change_state(CONFIGURE)
    assert probe.state() == "inactive"


def test_autostart_configures_and_activates_without_being_asked(probe, start_planner):
    start_planner(lambda parameters: FakePlanner(), autostart=True)
    wait_for(lambda: probe.state() == "active", "the state active")


def test_the_planner_is_only_ever_called_from_its_own_thread(probe, start_planner):
    planners = []

    def load(parameters):
        planners.append(FakePlanner())
        return planners[0]

    start_planner(load)
    assert probe.change_state(CONFIGURE)
    assert planners[0].calls == [("warm_up", None)]
    assert planners[0].threads == {"planning"}


def test_parameters_of_a_configured_node_are_refused_with_a_reason_and_bad_values_always(probe, start_planner):
    start_planner(lambda parameters: FakePlanner())
    for name, value in (("samples", 0), ("samples", "two"), ("image_transport", "theora"), ("cameras", ["roof"])):
        refused = probe.set_parameter(name, value)
        assert not refused.successful
        assert name in refused.reason
    assert probe.set_parameter("input_timeout_s", 2).successful  # an int for a double
    assert probe.change_state(CONFIGURE)
    refused = probe.set_parameter("samples", 2)
    assert not refused.successful
    assert "clean up" in refused.reason
