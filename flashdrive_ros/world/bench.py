"""Speed of the world, and how far other devices agree with the CPU: `python -m flashdrive_ros.world.bench`."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from flashdrive_ros.world.captions import caption_codes
from flashdrive_ros.world.renderer import make_painter, render
from flashdrive_ros.world.scene import make_scenes
from flashdrive_ros.world.simulation import Rollout, simulate
from flashdrive_ros.world.views import Views, views_of
from flashdrive_ros.world.windows import ego_future, ego_history, usable_windows

Result = TypeVar("Result")


def main() -> None:
    """Print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--scenes", type=int, default=64)
    parser.add_argument("--windows", type=int, default=32)
    parser.add_argument("--chunk", type=int, default=4, help="views rendered at once; 4 on a CPU, 512 on a GPU")
    parser.add_argument("--repeats", type=int, default=1, help="of everything, the last is reported")
    arguments = parser.parse_args()
    for _ in range(arguments.repeats):
        report = _measure(arguments.device, arguments.scenes, arguments.windows, arguments.chunk)
    if arguments.device != "cpu":
        report |= _agreement(arguments.device)
    print(json.dumps(report, indent=1))


def _measure(device: str, scene_count: int, window_count: int, chunk: int) -> dict[str, float]:
    scenes, build_s = _timed(device, lambda: make_scenes(range(scene_count), device))
    rollout, simulate_s = _timed(device, lambda: simulate(scenes, 264, 1.0))
    (step, scene), _ = _timed(device, lambda: usable_windows(rollout))
    usable = len(step)
    pick = torch.linspace(0, usable - 1, window_count, device=device).long()
    _, label_s = _timed(device, lambda: _labels(rollout, step[pick], scene[pick]))
    painter = make_painter(scenes)
    shown = views_of(rollout, step[pick], scene[pick])
    _, render_s = _timed(device, lambda: render(painter, shown, chunk))
    return {
        "scenes_built_per_s": scene_count / build_s,
        "scene_steps_per_s": scene_count * 264 / simulate_s,
        "usable_windows": usable,
        "usable_windows_simulated_per_s": usable / (build_s + simulate_s),
        "labels_per_s": window_count / label_s,
        "windows_rendered_per_s": window_count / render_s,
        "images_per_s": 4 * window_count / render_s,
    }


def _labels(rollout: Rollout, step: Tensor, scene: Tensor) -> tuple[Tensor, ...]:
    history = ego_history(rollout, step, scene)
    return *history, ego_future(rollout, step, scene), caption_codes(rollout, step, scene)


def _agreement(device: str) -> dict[str, float]:
    """The same views, rendered on both devices."""
    scenes = make_scenes(range(16))
    rollout = simulate(scenes, 60)
    scene = torch.arange(16).repeat(4)
    shown = views_of(rollout, torch.arange(64) * 59 // 63, scene)
    there = Views(*(getattr(shown, name).to(device) for name in Views.__dataclass_fields__))
    here = render(make_painter(scenes), shown, 4)
    other = render(make_painter(make_scenes(range(16), device)), there, 64).cpu()
    difference = (here.int() - other.int()).abs()
    return {
        "share_of_values_within_2_levels": float((difference <= 2).float().mean()),
        "mean_difference_levels": float(difference.float().mean()),
    }


def _timed(device: str, work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.perf_counter()
    result = work()
    if device != "cpu":
        torch.cuda.synchronize()
    return result, time.perf_counter() - start


if __name__ == "__main__":
    main()
