"""The shipped recording gives plans, the same ones in every process; a recording that is too short is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashdrive_ros.cli import main

DEMO_BAG = "resource/bags/demo"


def replay_in_fresh_process(repository: Path, out: Path) -> dict[str, Any]:
    words = ["replay", str(repository / DEMO_BAG), "--out", str(out), "--json", "-"]
    finished = subprocess.run(
        [sys.executable, "-m", "flashdrive_ros.cli", *words],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def test_demo_bag_gives_the_same_whole_plans_in_two_fresh_processes(repository: Path, tmp_path: Path) -> None:
    results = [replay_in_fresh_process(repository, tmp_path / name) for name in ("first", "second")]
    first, second = (tmp_path / name / "plans.jsonl" for name in ("first", "second"))
    assert results[0]["plans_sha256"] == results[1]["plans_sha256"]
    assert first.read_bytes() == second.read_bytes()
    plans = [json.loads(line) for line in first.read_text(encoding="utf-8").splitlines()]
    assert len(plans) == results[0]["plans"] >= 20
    for plan in plans:
        for frame in ("base_link", "odometry"):
            positions = np.array(plan["samples"][0][frame]["positions_m"])
            assert positions.shape == (64, 3)
            assert np.isfinite(positions).all()
    # 75 frames at 25 fps from 0 s to 2.96 s: windows every 0.1 s, the grid's own rule, and three to fill the stream.
    assert results[0]["windows"] == 30
    assert results[0]["refusals"]["stream_filling"]["count"] == 3


def test_half_of_the_demo_bag_gives_the_plans_of_its_readable_part_and_status_one(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = Path(shutil.copytree(repository / DEMO_BAG, tmp_path / "bag"))
    content = (bag / "bag.mcap").read_bytes()
    (bag / "bag.mcap").write_bytes(content[: len(content) // 2])
    assert main(["replay", str(bag), "--out", str(tmp_path / "out"), "--json", str(tmp_path / "result.json")]) == 1
    error = capsys.readouterr().err
    assert "damaged" in error
    assert "the rest is lost" in error
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    lines = (tmp_path / "out" / "plans.jsonl").read_bytes().splitlines()
    assert 0 < len(lines) == result["plans"] < 20


def test_tri_scene_is_refused_for_lack_of_a_fourth_frame(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = tmp_path / "tri"
    assert main(["convert", "tri", str(shared_data / "tri_dgp_test_scene" / "scene_02"), str(bag)]) == 0
    capsys.readouterr()
    assert main(["replay", str(bag), "--out", str(tmp_path / "out")]) == 1
    line = (
        f"flashdrive replay: {bag}: 3 frames per camera found, at least 4 needed, 0.1 s apart: "
        "no plan possible for lack of a fourth frame\n"
    )
    assert capsys.readouterr() == ("", line)
    assert not (tmp_path / "out").exists()
