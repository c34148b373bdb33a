"""Chain-of-Causation sentences from the expert's causes: 8 to 24 tokens of nano's tokenizer, several thousand in all.

Which of several wordings is used depends on what can be seen of the event (kind and colour of the other vehicle,
daylight), not on chance: the same situation is described the same way in every frame, and a reasoner can learn it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flashdrive_ros.world import causes, layout
from flashdrive_ros.world.scene import Scenes
from flashdrive_ros.world.simulation import Rollout

_FREE = {
    causes.KEEP: (
        "keep speed in the lane since the road ahead is clear",
        "keep the lane at the speed limit on the clear road",
    ),
    causes.ACCELERATE: ("accelerate since the lane ahead is clear", "resume speed because the road ahead is free"),
    causes.START: ("start moving since the path ahead is clear", "creep forward because the lane ahead is free"),
    causes.GREEN_AHEAD: (
        "proceed since the traffic light ahead is green",
        "go through the intersection on the green traffic light",
    ),
}
_BEND = {
    causes.BEND_LEFT: ("slow down for the left bend ahead", "adapt speed for the curve to the left"),
    causes.BEND_RIGHT: ("slow down for the right bend ahead", "adapt speed for the curve to the right"),
    causes.TURN_LEFT: ("slow down to turn left at the intersection", "adapt speed for the left turn at the junction"),
    causes.TURN_RIGHT: (
        "slow down to turn right at the intersection",
        "adapt speed for the right turn at the junction",
    ),
}
_LEAD = {
    causes.MOVING: (
        "keep a safe distance behind the {thing} in our lane",
        "follow the {thing} ahead at a safe distance",
    ),
    causes.BRAKING: (
        "brake hard because the {thing} in front of us is braking",
        "slow down for the braking {thing} in our lane",
    ),
    causes.STANDING: ("stop behind the stopped {thing} in our lane", "wait behind the {thing} stopped in front of us"),
}
_LIGHT = {
    causes.APPROACH: (
        "slow down for the red traffic light ahead",
        "prepare to stop at the stop line for the red light",
    ),
    causes.WAIT: ("wait at the stop line while the light is red", "hold position because the traffic light is red"),
}
_STOP = {
    causes.APPROACH: ("slow down for the stop sign and the stop line ahead", "prepare to stop at the stop sign ahead"),
    causes.WAIT: ("stop at the stop line because of the stop sign", "hold position at the stop sign for a second"),
}
_YIELD = {
    causes.FROM_RIGHT: ("yield to the {thing} crossing from the right", "wait for the {thing} from the right to clear"),
    causes.FROM_LEFT: ("yield to the {thing} crossing from the left", "wait for the {thing} from the left to clear"),
    causes.ONCOMING: ("yield to the oncoming {thing} before turning left", "wait for the oncoming {thing} to clear"),
}
_WALKER = {
    causes.APPROACH: (
        "slow down for the pedestrian at the crosswalk ahead",
        "yield to the pedestrian crossing the road ahead",
    ),
    causes.WAIT: ("wait for the pedestrian at the crosswalk", "hold position until the pedestrian is across the road"),
}
_TEXTS = (_FREE, _BEND, _LEAD, _LIGHT, _STOP, _YIELD, _WALKER)
_ASIDE = {
    causes.STRAIGHT: ("",),
    causes.NUDGE: (" and nudge left around the parked {parked}", " and steer around the parked {parked}"),
    causes.LEFT_TURN: (", then turn left", " before turning left"),
    causes.RIGHT_TURN: (", then turn right", " before turning right"),
}


@dataclass(frozen=True)
class Situation:
    """What a caption says: numbers of causes.py, and what can be seen."""

    kind: int
    detail: int
    thing: str
    """The other vehicle, "red car"."""
    manoeuvre: int
    parked: str
    variant: int
    """0 or 1: which wording."""


def sentence(situation: Situation) -> str:
    """The caption of a situation."""
    texts = _TEXTS[situation.kind][situation.detail]
    main = texts[situation.variant].format(thing=situation.thing)
    aside = _ASIDE[situation.manoeuvre]
    said = situation.kind == causes.BEND and situation.detail in (causes.TURN_LEFT, causes.TURN_RIGHT)
    said = said or (situation.kind == causes.YIELD and situation.detail == causes.ONCOMING and situation.variant == 0)
    turning = situation.manoeuvre in (causes.LEFT_TURN, causes.RIGHT_TURN)
    addition = "" if said and turning else aside[situation.variant % len(aside)].format(parked=situation.parked)
    return f"{main}{addition}."


def caption_codes(rollout: Rollout, step: Tensor, scene: Tensor) -> Tensor:
    """[N] int64: a number per distinct caption of instants (step [N], scene [N]); equal numbers, equal sentences."""
    scenes = rollout.scenes
    kind, thing, detail = rollout.cause[step, scene].unbind(-1)
    manoeuvre, parked = rollout.manoeuvre[step, scene].unbind(-1)
    vehicle = (kind == causes.LEAD) | (kind == causes.YIELD)
    index = torch.where(vehicle, thing, 0)
    look = scenes.vehicle_kind[scene, index] * len(layout.COLOURS) + scenes.vehicle_colour[scene, index]
    look = torch.where(vehicle, look, 0)
    parked_look = scenes.parked_kind[scene, parked] * len(layout.COLOURS) + scenes.parked_colour[scene, parked]
    parked_look = torch.where(manoeuvre == causes.NUDGE, parked_look, 0)
    seen = scenes.dusk[scene].to(torch.int64) + look + look // len(layout.COLOURS)
    looks = len(layout.COLOURS) * len(layout.VEHICLE_NAMES)
    code = (kind * 4 + detail) * looks + look
    return ((code * 4 + manoeuvre) * looks + parked_look) * 2 + seen % 2


def situation_of(code: int) -> Situation:
    """The situation of a number from `caption_codes`."""
    looks = len(layout.COLOURS) * len(layout.VEHICLE_NAMES)
    code, variant = divmod(code, 2)
    code, parked = divmod(code, looks)
    code, manoeuvre = divmod(code, 4)
    code, look = divmod(code, looks)
    return Situation(code // 4, code % 4, _look(look), manoeuvre, _look(parked), variant)


def captions(rollout: Rollout, step: Tensor, scene: Tensor) -> list[str]:
    """Sentences of instants (step [N], scene [N])."""
    return [sentence(situation_of(code)) for code in caption_codes(rollout, step, scene).tolist()]


def all_sentences() -> list[str]:
    """Every caption there is, sorted."""
    looks = [_look(k) for k in range(len(layout.COLOURS) * len(layout.VEHICLE_NAMES))]
    parked_looks = looks[: 2 * len(layout.COLOURS)]
    found = set()
    for kind, texts in enumerate(_TEXTS):
        things = looks if kind in (causes.LEAD, causes.YIELD) else looks[:1]
        for detail in texts:
            for manoeuvre in _ASIDE:
                parked_things = parked_looks if manoeuvre == causes.NUDGE else looks[:1]
                found |= {
                    sentence(Situation(kind, detail, thing, manoeuvre, parked, variant))
                    for thing in things
                    for parked in parked_things
                    for variant in (0, 1)
                }
    return sorted(found)


def _look(number: int) -> str:
    kind, colour = divmod(number, len(layout.COLOURS))
    return f"{layout.COLOUR_NAMES[colour]} {layout.VEHICLE_NAMES[kind]}"


def route_codes(scenes: Scenes, station: Tensor, scene: Tensor) -> Tensor:
    """[N] int64 route instruction at route stations [N]: 0 none, else the distance in steps of 20 m and the side.

    Announced from 100 m before a turn until it is driven: 1 + 2 * (distance / 20 m, rounded) + (0 left, 1 right).
    """
    begin, end = scenes.turn_stations[scene].unbind(-1)
    middle = (begin + end) / 2
    tens = ((middle - station).clamp(min=0.0) / 20.0).round().to(torch.int64)
    announced = (scenes.turn[scene] != 0) & (middle - station < 100.0) & (station < end)
    return torch.where(announced, 1 + 2 * tens + (scenes.turn[scene] < 0).to(torch.int64), 0)


def route_text(code: int) -> str:
    """Text of a number from `route_codes`: "turn left in 40m", "turn left now", empty for 0."""
    if code == 0:
        return ""
    steps, right = divmod(code - 1, 2)
    side = "right" if right else "left"
    return f"turn {side} in {20 * steps}m" if steps else f"turn {side} now"


def routes(rollout: Rollout, step: Tensor, scene: Tensor) -> list[str]:
    """Route texts of instants (step [N], scene [N])."""
    codes = route_codes(rollout.scenes, rollout.ego_station[step, scene], scene)
    return [route_text(code) for code in codes.tolist()]
