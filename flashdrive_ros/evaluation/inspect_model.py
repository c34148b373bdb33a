"""`flashdrive inspect`: a model's sizes, prompt and cache layout. Needs neither torch nor weights."""

from __future__ import annotations

import argparse
from typing import Any

from flashdrive_ros.cameras import CAMERAS
from flashdrive_ros.evaluation.model_sizes import cache_bytes_per_slot, parameter_counts
from flashdrive_ros.evaluation.model_source import UNEXPORTED, model_source
from flashdrive_ros.model.prompt import build_prompt
from flashdrive_ros.streaming.layout import build_layout

EXAMPLE = "flashdrive inspect alpamayo-1.5 --json -"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("model", help=f"nano, {', '.join(UNEXPORTED)}, or the folder of an exported model")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything that follows from the configuration. Raises ModelFileError for a missing or damaged model."""
    source = model_source(arguments.model)
    config = source.config
    prompt = build_prompt(config, source.encode)
    layout = build_layout(config, prompt)
    static_slots = len(layout.static_ids)
    prompt_tokens = layout.tail_order + prompt.tail_tokens
    first_generated_position = layout.tail_position + prompt.tail_tokens
    parts = parameter_counts(config)
    slot_bytes = cache_bytes_per_slot(config, source.bytes_per_cached_number)
    return {
        "model": config.name,
        "weights_origin": source.weights_origin,
        "parameters": sum(parts.values()),
        "parameters_by_part": parts,
        "cameras": [CAMERAS[camera].name for camera in config.prompt.cameras],
        "frames_per_camera": layout.frames,
        "image_tokens_per_frame": layout.image_tokens,
        "prompt_tokens": prompt_tokens,
        "query_tokens": layout.visual_rows + prompt.tail_tokens,
        "rope_delta": first_generated_position - prompt_tokens,
        "first_generated_position": first_generated_position,
        "static_slots": static_slots,
        "static_stride": layout.static_stride,
        "chunk_stride": layout.chunk_stride,
        "slots": layout.slots,
        "prefill_rows": layout.prefill_rows,
        "route_capacity": config.prompt.route_capacity,
        "reasoning_capacity": config.prompt.reasoning_capacity,
        "reasoning_room": layout.reasoning_room,
        "cache_bytes_per_slot": slot_bytes,
        "cache_bytes": slot_bytes * layout.slots,
    }


def summary(result: dict[str, Any]) -> str:
    """The same, a few numbers a line."""
    parts = ", ".join(f"{name} {count:,}" for name, count in result["parameters_by_part"].items())
    return (
        f"{result['model']}: {result['parameters']:,} parameters ({parts})\n"
        f"weights: {result['weights_origin']}\n"
        f"cameras: {', '.join(result['cameras'])}; {result['frames_per_camera']} frames each, "
        f"{result['image_tokens_per_frame']} tokens a frame\n"
        f"prompt without route: {result['prompt_tokens']} tokens, {result['query_tokens']} of them new in each window, "
        f"rope delta {result['rope_delta']}, first generated position {result['first_generated_position']}\n"
        f"cache: {result['static_slots']} static slots (stride {result['static_stride']}), "
        f"{result['frames_per_camera']} chunks of {result['chunk_stride']}, {result['slots']} slots in all, "
        f"{result['cache_bytes_per_slot']:,} bytes a slot, {result['cache_bytes'] / 1e6:.1f} MB\n"
        f"prefill: {result['prefill_rows']} rows; at most {result['route_capacity']} route tokens and "
        f"{result['reasoning_capacity']} reasoning tokens ({result['reasoning_room']} slots)"
    )
