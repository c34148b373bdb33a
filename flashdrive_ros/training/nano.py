"""Training of nano on one GPU: language and flow together, then the expert alone on streams.

The schedule runs over wall time, not steps: a run of so many minutes ends with a learning rate of zero on any machine.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from flashdrive_ros.engines.export import store_weights
from flashdrive_ros.model.network import Network
from flashdrive_ros.model.prompt import build_prompt
from flashdrive_ros.streaming.layout import build_layout
from flashdrive_ros.training.data import Coder, Windows, stream_batches, window_batches
from flashdrive_ros.training.losses import flow_loss, full_pass, language_loss, sample_actions
from flashdrive_ros.training.scoring import displacement
from flashdrive_ros.training.sequences import PromptTables, prompt_tables
from flashdrive_ros.training.streaming import static_caches, stream_pass

FIRST_TRAINING_SEED = 1_000_000
"""Scenes below are held out."""


@dataclass(frozen=True)
class TrainSettings:
    """One run."""

    minutes: float
    first_seed: int
    """Scenes from this seed on are trained on; below FIRST_TRAINING_SEED they are held out."""
    batch: int = 256
    scenes: int = 1024
    """Scenes simulated together."""
    windows_per_scene: int = 16
    learning_rate: float = 1e-3
    warm_up: float = 0.03
    """Share of the run."""
    weight_decay: float = 0.05
    flow_samples: int = 4
    """Noises and times a window."""
    clip: float = 1.0
    log_every: int = 50


def tables_for(coder: Coder, device: torch.device) -> PromptTables:
    """Prompt tables of the coder's model on `device`."""
    prompt = build_prompt(coder.config, coder.encode)
    return prompt_tables(prompt, build_layout(coder.config, prompt), device)


def learning_rate(settings: TrainSettings, share: float) -> float:
    """Linear warm-up, then cosine to zero, by the share of the run that is over."""
    if share < settings.warm_up:
        return settings.learning_rate * share / settings.warm_up
    rest = min(1.0, (share - settings.warm_up) / (1 - settings.warm_up))
    return settings.learning_rate * (1 + math.cos(math.pi * rest)) / 2


def train_windows(network: Network, coder: Coder, settings: TrainSettings, folder: Path) -> None:
    """Phase 1: everything but the drafter, on whole windows."""
    device = next(network.parameters()).device
    tables = tables_for(coder, device)
    future_start = coder.config.tokens.future_start
    parameters = [p for name, p in network.named_parameters() if not name.startswith("drafter.")]

    def losses(windows: Windows) -> tuple[Tensor, Tensor, Tensor]:
        logits, context = full_pass(network, tables, windows)
        language, accuracy = language_loss(logits, windows, future_start)
        return language, accuracy, flow_loss(network, context, windows.actions, settings.flow_samples)

    compiled = torch.compile(losses, dynamic=False) if device.type == "cuda" else losses

    def step(windows: Windows) -> tuple[Tensor, dict[str, Tensor]]:
        language, accuracy, flow = compiled(windows)
        return language + flow, {"language": language, "accuracy": accuracy, "flow": flow}

    batches = window_batches(
        coder, device, settings.first_seed, settings.scenes, settings.batch, settings.windows_per_scene
    )
    _run(network, parameters, batches, step, settings, folder, "windows")


def train_streaming(network: Network, coder: Coder, settings: TrainSettings, folder: Path) -> None:
    """Phase 2: the expert and its projections, on the last window of streams of random length."""
    device = next(network.parameters()).device
    tables = tables_for(coder, device)
    names = ("expert.", "action_in_proj.", "action_out_proj.")
    parameters = [p for name, p in network.named_parameters() if name.startswith(names)]
    with torch.no_grad():
        static = static_caches(network, tables)

    def step(stream: list[Windows]) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            logits, context = stream_pass(network, tables, static, stream)
            language, accuracy = language_loss(logits, stream[-1], coder.config.tokens.future_start)
        flow = flow_loss(network, context, stream[-1].actions, settings.flow_samples)
        return flow, {"language": language, "accuracy": accuracy, "flow": flow}

    batches = stream_batches(coder, device, settings.first_seed, settings.scenes, settings.batch, 4, 10)
    _run(network, parameters, batches, step, settings, folder, "streaming")


def _run(
    network: Network,
    parameters: list[torch.nn.Parameter],
    batches: Iterable,  # type: ignore[type-arg]  # windows or streams, as `step` takes them
    step: Callable[..., tuple[Tensor, dict[str, Tensor]]],
    settings: TrainSettings,
    folder: Path,
    phase: str,
) -> None:
    """The loop of both phases: schedule, mixed precision, clipping, log, weights at the end."""
    device = parameters[0].device
    network.requires_grad_(False)
    for parameter in parameters:
        parameter.requires_grad_(True)
    decayed = [p for p in parameters if p.ndim >= 2]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=(0.9, 0.98), fused=device.type == "cuda")
    log = (folder / f"{phase}.jsonl").open("a")
    started = time.monotonic()
    for count, batch in enumerate(batches, 1):
        if count == 2:
            started = time.monotonic()  # the first step compiles
        share = (time.monotonic() - started) / (60 * settings.minutes)
        if share >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(settings, share)
        with torch.autocast(device.type, torch.bfloat16):
            loss, shown = step(batch)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(parameters, settings.clip)
        optimiser.step()
        if count % settings.log_every == 0:
            seconds = time.monotonic() - started
            line = {"step": count, "seconds": round(seconds, 1), "norm": round(float(norm), 3)}
            line |= {name: round(float(value), 4) for name, value in shown.items()}
            print(json.dumps(line), file=log, flush=True)
            print(f"{phase} {min(share, 1):4.0%} step {count} {line}", file=sys.stderr)
    log.close()
    network.requires_grad_(False)
    store_weights(network, folder / "weights.safetensors")


@torch.no_grad()
def held_out_scores(
    network: Network, coder: Coder, first_seed: int, scenes: int, batch: int, samples: int
) -> dict[str, float]:
    """ADE at 6.4 s of the first and the best of `samples` trajectories, and caption accuracy, with given captions.

    Two ways over the same last windows: the whole window at once, and a stream of eight windows as the ring runs it.
    """
    device = next(network.parameters()).device
    tables = tables_for(coder, device)
    static = static_caches(network, tables)
    frames = coder.config.prompt.frames
    sums: dict[str, float] = {}
    rounds = 0
    streams = stream_batches(coder, device, first_seed, scenes, batch, 8, 8)
    while rounds * batch < 4 * scenes:
        stream = next(streams)
        whole = _whole(stream, frames)
        noise = torch.randn(batch, samples, coder.config.action.waypoints, 2, device=device)
        for name, (logits, context) in {
            "full": full_pass(network, tables, whole),
            "stream": stream_pass(network, tables, static, stream),
        }.items():
            _, accuracy = language_loss(logits, whole, coder.config.tokens.future_start)
            found = sample_actions(network, context, noise, coder.config.action.flow_steps)
            error = displacement(found, whole.actions, whole.speed_mps, coder.config.action)
            for key, value in (
                ("accuracy", accuracy),
                ("ade1", error[:, 0].mean()),
                ("ade_best", error.min(1).values.mean()),
            ):
                sums[f"{name}_{key}"] = sums.get(f"{name}_{key}", 0.0) + float(value)
        rounds += 1
    return {name: value / rounds for name, value in sums.items()} | {"windows": float(rounds * batch)}


def _whole(stream: list[Windows], frames: int) -> Windows:
    """The last window of a stream with the pictures of all its frames."""
    last = stream[-1]
    images = torch.stack([windows.images for windows in stream[-frames:]], 2).flatten(1, 2)
    return Windows(images, last.history, last.route, last.reasoning, last.actions, last.speed_mps)
