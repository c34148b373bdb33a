"""Images and odometry in, stamped plans out, and every fault counted: the whole node with a fake planner."""

from __future__ import annotations

import math

import pytest
from diagnostic_msgs.msg import DiagnosticArray
from fake_planner import FakePlanner
from flashdrive_ros.msg import Candidates, PlannerStatus, Reasoning, StageTiming, Trajectory
from nav_msgs.msg import Path
from node_helpers import ACTIVATE, CONFIGURE, DEACTIVATE, Car, wait_for
from rcl_interfaces.msg import Log
from std_msgs.msg import String
from visualization_msgs.msg import Marker, MarkerArray


class Drive:
    """An active node with a fake planner, its car, and what it published."""

    def __init__(self, probe, start_planner, planner, input_timeout_s):
        self.planner = planner
        self.probe = probe
        self.node = start_planner(lambda _: planner, input_timeout_s=input_timeout_s)
        assert probe.change_state(CONFIGURE)
        self.trajectories = probe.collect(Trajectory, "~/output/trajectory")
        self.statuses = probe.collect(PlannerStatus, "~/status")
        assert probe.change_state(ACTIVATE)
        self.car = Car(probe)
        self.car.history(2.0)

    def reason_count(self, code):
        """Newest published count of a reason code."""
        reasons = self.statuses[-1].reasons if self.statuses else []
        return sum(reason.count for reason in reasons if reason.code == code)

    def drive_until_planned(self, windows):
        """One tick at a time, each taken up by the planner before the next."""
        for _ in range(windows):
            seen = len(self.planner.calls)
            self.car.drive()
            wait_for(lambda seen=seen: len(self.planner.calls) > seen, "the planner to take up the window")


@pytest.fixture
def drive(probe, start_planner):
    def begin(planner=None, input_timeout_s=30.0):  # long: a busy test machine is not a silent input
        return Drive(probe, start_planner, planner or FakePlanner(), input_timeout_s)

    return begin


def test_plans_carry_the_stamp_of_their_images_and_agree_in_both_frames(drive, probe):
    run = drive()
    in_base_link = probe.collect(Trajectory, "~/output/trajectory_base_link")
    reasonings = probe.collect(Reasoning, "~/output/reasoning")
    candidates = probe.collect(Candidates, "~/output/candidates")
    timings = probe.collect(StageTiming, "~/debug/stage_timing")
    paths = probe.collect(Path, "~/output/path")
    markers = probe.collect(MarkerArray, "~/output/markers")
    run.drive_until_planned(3)
    assert run.trajectories == []
    wait_for(lambda: run.reason_count("stream_filling") == 3, "three windows of a filling stream")
    run.drive_until_planned(1)
    for received in (run.trajectories, in_base_link, reasonings, candidates, timings, paths, markers):
        wait_for(lambda received=received: received, "one message of every output")

    plan = run.trajectories[0]
    t0_ns = Car.START_NS + 400_000_000
    for message in (plan, in_base_link[0], reasonings[0], candidates[0], timings[0], paths[0]):
        assert message.header.stamp.sec * 10**9 + message.header.stamp.nanosec == t0_ns
    assert [m.plan_id for m in (plan, in_base_link[0], reasonings[0], candidates[0], timings[0])] == [3] * 5
    assert plan.header.frame_id == "odom"
    assert in_base_link[0].header.frame_id == "base_link"
    assert len(plan.points) == len(in_base_link[0].points) == 64
    # 8 m/s for 0.1 s and for 6.4 s; the car itself is at 8 m/s * 0.4 s, 100 m to the left of the origin.
    assert in_base_link[0].points[0].pose.position.x == pytest.approx(0.8)
    assert in_base_link[0].points[63].pose.position.x == pytest.approx(51.2)
    assert plan.points[0].pose.position.x == pytest.approx(3.2 + 0.8)
    assert plan.points[63].pose.position.x == pytest.approx(3.2 + 51.2)
    assert plan.points[63].pose.position.y == pytest.approx(100.0)
    assert plan.points[63].speed_mps == pytest.approx(8.0)
    assert (plan.points[0].time_from_start.sec, plan.points[0].time_from_start.nanosec) == (0, 100_000_000)
    assert (plan.points[63].time_from_start.sec, plan.points[63].time_from_start.nanosec) == (6, 400_000_000)
    assert reasonings[0].text == "Keep the lane because the road is clear."
    assert reasonings[0].token_count == 3
    assert candidates[0].trajectories == [plan]
    assert timings[0].total_ms == pytest.approx(15.0)
    assert paths[0].poses[63].pose == plan.points[63].pose
    assert [marker.type for marker in markers[0].markers] == [Marker.LINE_STRIP, Marker.TEXT_VIEW_FACING]
    assert markers[0].markers[1].text == reasonings[0].text

    planning = wait_for(lambda: [s for s in run.statuses if s.state == "planning"], "the status planning")[-1]
    assert (planning.plans_published, planning.window_id) == (1, 3)
    assert (planning.model, planning.backend) == ("nano", "fake")
    assert 0.0 < planning.plan_latency_ms < 5000.0


def test_status_says_what_is_waited_for_with_the_amounts(drive):
    run = drive()
    car = run.car
    wait_for(lambda: [s for s in run.statuses if "front_tele" in s.waiting_detail], "the missing cameras by name")
    run.probe.change_state(DEACTIVATE)
    run.probe.change_state(ACTIVATE)
    # 0.5 s of odometry where 1.5 s are needed [alpamayo#14]
    car.tick += 100
    car.history(0.5)
    for _ in range(3):
        car.drive()
    status = wait_for(
        lambda: [s for s in run.statuses if s.state == "waiting" and "history_short" in s.waiting_detail],
        "waiting for history",
    )[-1]
    assert "1.5" in status.waiting_detail
    assert run.trajectories == []


def test_a_slow_planner_gets_the_newest_window_and_prepares_the_skipped_ones_in_order(drive):
    run = drive()
    run.drive_until_planned(4)
    wait_for(lambda: len(run.trajectories) == 1, "the first plan")
    run.planner.gate.clear()
    run.planner.entered.clear()
    run.car.drive()
    wait_for(run.planner.entered.is_set, "window 4 in the planner")
    run.car.drive(ticks=3)
    wait_for(lambda: run.statuses[-1].window_id == 7, "windows 5, 6 and 7 complete")
    run.planner.gate.set()
    wait_for(lambda: len(run.trajectories) == 3, "the plans of windows 4 and 7")
    assert run.planner.calls[-4:] == [("plan", 4), ("prepare", 5), ("prepare", 6), ("plan", 7)]
    assert [trajectory.plan_id for trajectory in run.trajectories] == [3, 4, 7]
    wait_for(lambda: run.reason_count("window_superseded") == 2, "two superseded windows counted")


def test_an_undecodable_image_is_counted_and_the_node_plans_on(drive):
    run = drive()
    run.drive_until_planned(4)
    wait_for(lambda: len(run.trajectories) == 1, "the first plan")
    run.car.drive(spoil=("cross_left",))
    wait_for(lambda: run.reason_count("image_undecodable") == 1, "the undecodable image counted")
    run.car.drive(ticks=8)
    wait_for(lambda: run.trajectories[-1].header.stamp.nanosec == 300_000_000, "a plan of the newest images")


def test_an_exception_in_the_planner_is_counted_and_the_stream_starts_anew(drive):
    run = drive(FakePlanner(fail_on={4}))
    run.drive_until_planned(5)
    wait_for(lambda: run.reason_count("planner_failed") == 1, "the failure counted")
    run.drive_until_planned(4)
    wait_for(lambda: len(run.trajectories) == 2, "a plan after the restart")
    assert ("reset", None) in run.planner.calls
    assert [trajectory.plan_id for trajectory in run.trajectories] == [3, 8]


@pytest.mark.parametrize("stopped", ["front_tele", "odometry"])
def test_a_silent_input_makes_the_node_stale_and_its_return_makes_it_plan_again(drive, stopped):
    run = drive(input_timeout_s=1.0)
    run.drive_until_planned(4)
    wait_for(lambda: len(run.trajectories) == 1, "the first plan")
    cameras = tuple(name for name in ("cross_left", "front_wide", "cross_right", "front_tele") if name != stopped)

    def goes_stale():
        run.car.drive(cameras=cameras, odometry=stopped != "odometry")
        return [s for s in run.statuses if s.state == "stale" and stopped in s.waiting_detail]

    wait_for(goes_stale, "a stale status that names the input", period_s=0.1)
    assert run.reason_count("input_stale") >= 1
    published = len(run.trajectories)

    def plans_again():
        run.car.drive()
        return len(run.trajectories) > published and run.statuses[-1].state == "planning"

    wait_for(plans_again, "plans after the return", period_s=0.1)


def test_a_bag_that_starts_again_resets_the_planner_once_and_is_planned_again(drive):
    run = drive()
    run.drive_until_planned(5)
    wait_for(lambda: len(run.trajectories) == 2, "two plans")
    run.car.tick = -30
    run.car.history(2.0)
    run.drive_until_planned(4)
    wait_for(lambda: len(run.trajectories) == 3, "a plan of the second round")
    wait_for(lambda: run.reason_count("stamp_backward") == 1, "one backward jump counted")
    assert run.planner.calls.count(("reset", None)) == 1


def test_nothing_is_published_after_deactivate_even_from_a_plan_in_flight(drive, probe):
    run = drive()
    run.drive_until_planned(4)
    wait_for(lambda: len(run.trajectories) == 1, "the first plan")
    run.planner.gate.clear()
    run.planner.entered.clear()
    run.car.drive()
    wait_for(run.planner.entered.is_set, "window 4 in the planner")
    assert probe.change_state(DEACTIVATE)
    run.planner.gate.set()
    assert probe.change_state(ACTIVATE)
    run.car.tick += 100
    run.car.history(2.0)
    run.drive_until_planned(4)
    wait_for(lambda: len(run.trajectories) == 2, "a plan after the second activation")
    assert [trajectory.plan_id for trajectory in run.trajectories] == [3, 8]


def test_diagnostics_name_the_node_and_count_the_reasons(drive, probe):
    run = drive()
    arrays = probe.collect(DiagnosticArray, "/diagnostics")
    run.drive_until_planned(2)

    def counted():
        mine = [
            status
            for array in arrays
            for status in array.status
            if status.name == f"{probe.namespace.lstrip('/')}/flashdrive_planner: planner"
        ]
        return [s for s in mine if any(v.key == "reason.stream_filling" for v in s.values)]

    status = wait_for(counted, "a diagnostic with the reason's count")[-1]
    assert status.hardware_id == "nano"
    assert math.isfinite(float(next(v.value for v in status.values if v.key == "window_id")))


def test_a_publisher_that_cannot_be_received_is_logged_by_topic(drive, probe):
    drive()
    logs = probe.collect(Log, "/rosout")
    topic = f"{probe.namespace}/flashdrive_planner/input/route"
    probe.node.create_publisher(String, topic, 1)  # volatile, where the node asks for a latched one
    wait_for(
        lambda: [log for log in logs if topic in log.msg and "DURABILITY" in log.msg], "a log that names the topic"
    )


def test_simulated_time_that_never_comes_is_said_in_wall_time(probe, start_planner):
    start_planner(lambda _: FakePlanner(), use_sim_time=True)
    logs = probe.collect(Log, "/rosout")
    wait_for(lambda: [log for log in logs if "/clock" in log.msg], "a warning about /clock", timeout_s=8.0)
