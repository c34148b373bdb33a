"""`flashdrive train nano`: train on the driving world, whole windows first, then streams."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from flashdrive_ros.errors import ParameterError

EXAMPLE = "flashdrive train nano out/nano --minutes 20 --streaming-minutes 5"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("model", choices=["nano"], help="configuration to train")
    parser.add_argument("out", type=Path, help="folder for weights.safetensors and the training logs")
    parser.add_argument("--minutes", type=float, default=20.0, help="of training on whole windows (%(default)s)")
    parser.add_argument("--streaming-minutes", type=float, default=5.0, help="of tuning the expert on streams")
    parser.add_argument("--batch", type=int, default=256, help="windows a step (%(default)s)")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="highest of the first phase (%(default)s)")
    parser.add_argument("--weights", type=Path, help="weights.safetensors to go on from")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and of the scenes (%(default)s)")
    parser.add_argument("--device", default="cuda", help="torch device (%(default)s)")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train and score on held-out scenes after each phase."""
    import torch

    from flashdrive_ros.engines.export import TOKENIZER, load_weights
    from flashdrive_ros.model.config import CONFIGS
    from flashdrive_ros.model.network import seeded_network
    from flashdrive_ros.model.tokens import load_tokenizer
    from flashdrive_ros.training.data import Coder
    from flashdrive_ros.training.nano import (
        FIRST_TRAINING_SEED,
        TrainSettings,
        held_out_scores,
        train_streaming,
        train_windows,
    )
    from flashdrive_ros.training.nano_tokenizer import save_tokenizer

    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise ParameterError("--device cuda: no GPU found; --device cpu works but takes days")
    started = time.monotonic()
    arguments.out.mkdir(parents=True, exist_ok=True)
    save_tokenizer(arguments.out / TOKENIZER)
    encode, _ = load_tokenizer(arguments.out / TOKENIZER)
    coder = Coder(CONFIGS[arguments.model], encode, {}, {})
    torch.manual_seed(arguments.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    network = seeded_network(coder.config, arguments.seed).to(arguments.device)
    if arguments.weights is not None:
        load_weights(network, arguments.weights)
    scores: dict[str, dict[str, float]] = {}
    first_seed = FIRST_TRAINING_SEED * (1 + arguments.seed)
    phases = (
        ("windows", arguments.minutes, arguments.learning_rate, train_windows, 1024, 0),
        ("streaming", arguments.streaming_minutes, arguments.learning_rate / 5, train_streaming, 512, 500_000_000),
    )
    for name, minutes, rate, train, scenes, offset in phases:
        if minutes <= 0:
            continue
        settings = TrainSettings(minutes, first_seed + offset, batch=arguments.batch, scenes=scenes, learning_rate=rate)
        train(network, coder, settings, arguments.out)
        scores[name] = held_out_scores(network, coder, 0, 128, 128, 6)
    return {
        "model": arguments.model,
        "weights": str(arguments.out / "weights.safetensors"),
        "held_out": scores,
        "seconds": round(time.monotonic() - started, 1),
    }


def summary(result: dict[str, Any]) -> str:
    """Scores after each phase."""
    lines = [f"{result['model']}: {result['weights']} after {result['seconds']:.0f} s"]
    for phase, scores in result["held_out"].items():
        shown = ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
        lines.append(f"after {phase}: {shown}")
    return "\n".join(lines)
