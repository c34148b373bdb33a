"""nano's tokenizer: byte-level BPE over driving sentences: common words are one token and any text is possible."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from flashdrive_ros.model.config import NANO

PIECES = 1024
"""Byte-level BPE pieces; the special tokens follow."""

_MANOEUVRES = (
    "slow down", "stop", "keep speed", "accelerate", "keep the lane", "keep a safe distance", "turn left", "turn right",
    "go straight", "nudge left", "nudge right", "yield", "wait", "creep forward", "change lanes to the left",
    "change lanes to the right", "merge", "brake hard", "resume speed", "proceed", "overtake", "pull over", "follow",
    "start moving", "hold position", "steer around", "coast", "prepare to stop", "adapt speed", "stay behind",
)  # fmt: skip
_JOINS = ("for", "because of", "since", "due to", "behind", "before", "after", "past", "to give way to", "and watch")
_OBJECTS = (
    "car", "truck", "bus", "van", "motorcycle", "cyclist", "bicycle", "pedestrian", "child", "dog", "traffic light",
    "stop line", "stop sign", "yield sign", "crosswalk", "crossing", "intersection", "junction", "roundabout", "curve",
    "bend", "parked car", "double-parked vehicle", "lead vehicle", "oncoming vehicle", "construction zone", "cone",
    "barrier", "emergency vehicle", "ambulance", "speed bump", "speed limit", "lane end", "lane marking", "kerb",
    "road edge", "queue", "bridge", "tunnel", "ramp", "highway", "street", "avenue", "boulevard", "driveway", "school",
    "obstacle", "debris", "puddle", "tram", "taxi", "trailer", "gap", "traffic",
)  # fmt: skip
_QUALITIES = (
    "red", "green", "yellow", "amber", "slow", "stopped", "braking", "turning", "crossing", "merging", "parked",
    "close",
    "distant", "narrow", "wide", "clear", "blocked", "wet", "sharp", "left", "right", "front", "rear", "white", "dark",
    "fast", "approaching", "waiting", "free", "next", "occluded", "straight", "gentle", "steep", "busy", "empty",
)  # fmt: skip
_PLACES = (
    "ahead", "on the left", "on the right", "in the lane", "in our lane", "in the adjacent lane",
    "at the intersection",
    "at the stop line", "at the crosswalk", "on the shoulder", "from the left", "from the right", "in front of us",
    "behind us", "across the road", "near the kerb", "in 20m", "in 40m", "in 100m", "at the next light",
    "at the roundabout",
    "onto the main road", "within the speed limit", "until the road is clear", "while the light is red", "by the side",
)  # fmt: skip
_MORE_WORDS = (
    "vehicle", "driver", "passenger", "signal", "lights", "headlights", "indicator", "weather", "rain", "snow", "fog",
    "night", "dusk", "day", "visibility", "north", "south", "east", "west", "exit", "entrance", "destination", "route",
    "kilometres", "metres", "seconds", "minutes", "about", "already", "again", "also", "almost", "although", "around",
    "between", "both", "could", "does", "during", "either", "enough", "every", "have", "into", "keep", "less", "more",
    "most", "must", "near", "need", "never", "only", "other", "over", "quickly", "quite", "same", "should", "slightly",
    "slowly", "smoothly", "some", "still", "than", "that", "their", "there", "these", "they", "this", "through",
    "toward",
    "under", "very", "when", "where", "which", "who", "will", "with", "without", "would", "second", "third", "first",
    "last", "lane", "lanes", "road", "path", "space", "speed", "distance", "brake", "steer", "turning", "entering",
    "leaving", "blocking", "reversing", "cutting in", "opening its door", "loading", "unloading", "cross", "clearing",
)  # fmt: skip


def sentences() -> Iterator[str]:
    """A few tens of thousands of driving sentences, always in the same order."""
    numbered = enumerate(itertools.product(_MANOEUVRES, _JOINS, _OBJECTS, _PLACES))
    for index, (manoeuvre, join, thing, place) in numbered:
        if index % 13 == 0:
            quality = _QUALITIES[index % len(_QUALITIES)]
            yield f"{manoeuvre} {join} the {quality} {thing} {place}."
            yield f"{manoeuvre.capitalize()}: {quality} {thing} {place}, then {_MANOEUVRES[index % 30]}."
    for camera in ("Front left", "Front", "Front right", "Rear left", "Rear", "Rear right", "Front telephoto"):
        for index in range(4):
            yield f"{camera} camera: frame {index}"
    for word, number in itertools.product(_MORE_WORDS, range(0, 200, 10)):
        yield f"the {word} is {word} in {number}m, {word}."
    for number in range(200):
        yield f"in {number} m at {number} km/h for {number} s, after {number} seconds."
    for text in ("system\n", "user\n", "assistant\n", NANO.prompt.system_text, NANO.prompt.request_text):
        yield from [text] * 50


def special_tokens() -> list[str]:
    """Names of the ids from PIECES on, in order."""
    named = {
        value: f"<|{name}|>"
        for name, value in vars(NANO.tokens).items()
        if name not in ("trajectory_first", "trajectory_count", "history_first")
    }
    return [named.get(index, f"<|padding_{index}|>") for index in range(PIECES, NANO.tokens.trajectory_first)]


def build_tokenizer() -> Tokenizer:
    """Train the tokenizer; the same bytes come out every time."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    tokenizer.train_from_iterator(sentences(), trainer)
    if tokenizer.get_vocab_size() != PIECES:
        raise RuntimeError(f"{tokenizer.get_vocab_size()} pieces learned, {PIECES} expected: the corpus is too small")
    tokenizer.add_special_tokens(special_tokens())
    return tokenizer


def save_tokenizer(path: Path) -> None:
    """Write `tokenizer.json`."""
    path.write_text(build_tokenizer().to_str(pretty=False))
