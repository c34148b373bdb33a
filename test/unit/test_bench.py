"""`flashdrive bench`: it measures real work, and says on what."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest

from flashdrive_ros.cli import main
from flashdrive_ros.evaluation.durations import durations, stage_durations
from flashdrive_ros.evaluation.made_windows import made_windows
from flashdrive_ros.model.action_space import initial_speed_mps
from flashdrive_ros.model.config import NANO
from flashdrive_ros.plan import StageTiming


def test_percentiles_interpolate_between_measurements() -> None:
    # 0, 1, ..., 100: the q-th percentile is q
    assert durations([float(value) for value in range(100, -1, -1)]) == {
        "n": 101,
        "median_ms": 50.0,
        "p90_ms": 90.0,
        "p99_ms": 99.0,
    }


def test_a_pass_is_the_share_of_its_plan_and_stages_that_never_ran_are_left_out() -> None:
    no_pass = StageTiming(1.0, 2.0, 30.0, 0.0, 0.0, 5.0, 38.0, verify_passes=0, draft_tokens_accepted=9)
    four_passes = StageTiming(1.0, 2.0, 30.0, 0.0, 12.0, 5.0, 50.0, verify_passes=4, draft_tokens_accepted=0)
    stages = stage_durations([no_pass, four_passes])
    assert "draft" not in stages
    assert stages["verify_pass"]["n"] == 1
    assert stages["verify_pass"]["median_ms"] == 3.0
    assert stages["total"]["median_ms"] == 44.0


def test_windows_are_never_twice_the_same_and_always_on_the_grid() -> None:
    windows = list(islice(made_windows(NANO.prompt, (32, 16), seed=1), 3))
    pictures = [frame.pixels.tobytes() for window in windows for frame in window.frames]
    assert len(set(pictures)) == 3 * 4
    assert [window.t0_ns - windows[0].t0_ns for window in windows] == [0, 100_000_000, 200_000_000]
    again = next(made_windows(NANO.prompt, (32, 16), seed=1))
    assert again.frames[2].pixels.tobytes() == pictures[2]


def test_made_history_is_that_of_a_car_driving_forward_and_ends_in_base_link() -> None:
    for window in islice(made_windows(NANO.prompt, (32, 16), seed=1), 40):
        history = window.history
        assert history.positions_m.shape == (16, 3)
        np.testing.assert_allclose(history.positions_m[-1], 0.0, atol=1e-12)
        np.testing.assert_allclose(history.rotations[-1], np.eye(3), atol=1e-12)
        assert np.all(np.diff(history.positions_m[:, 0]) > 0.7)  # 8 m/s and more, forward
        assert initial_speed_mps(history, 0.1) == pytest.approx(window.ego.speed_mps, abs=0.3)


def test_result_has_every_stage_and_says_on_what_it_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "pipeline", "--windows", "2", "--picture-size", "160x96", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"preprocess", "vision", "prefill", "verify", "verify_pass", "action", "total"} <= set(result["stages"])
    for numbers in result["stages"].values():
        assert numbers["n"] == result["plans"]
        assert 0 < numbers["median_ms"] <= numbers["p90_ms"] <= numbers["p99_ms"]
    assert result["call"]["n"] == 2
    assert result["picture_size"] == [160, 96]
    assert 0 < result["resident_memory_mb"]["now"] <= result["resident_memory_mb"]["peak"]
    assert result["machine"]["cores"] >= 1
    assert result["versions"]["onnxruntime"][0].isdigit()
    assert result["commit"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--windows", "0"], "--windows 0"),
        (["--samples", "0"], "samples: 0 found"),
        (["--seed", "-1"], "seed: -1 found"),
        (["--model", "no/such/model"], "no/such/model: model folder not found"),
    ],
)
def test_wrong_option_is_one_line_that_names_it(
    words: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "pipeline", *words]) == 1
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1


def test_unreadable_picture_size_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "pipeline", "--picture-size", "640"])
    assert stopped.value.code == 2
    assert "'640' found, WIDTHxHEIGHT" in capsys.readouterr().err
