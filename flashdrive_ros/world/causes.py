"""Numbers of what the expert acts on: a cause is (kind, object, detail)."""

from __future__ import annotations

FREE, BEND, LEAD, LIGHT, STOP, YIELD, WALKER = range(7)
"""Kinds. The object is a vehicle (LEAD, YIELD), a walker (WALKER), a junction (LIGHT, STOP), else 0."""

# Details
KEEP, ACCELERATE, START, GREEN_AHEAD = range(4)
"""of FREE"""
BEND_LEFT, BEND_RIGHT, TURN_LEFT, TURN_RIGHT = range(4)
"""of BEND"""
MOVING, BRAKING, STANDING = range(3)
"""of LEAD"""
APPROACH, WAIT = range(2)
"""of LIGHT, STOP, WALKER"""
FROM_RIGHT, FROM_LEFT, ONCOMING = range(3)
"""of YIELD"""

# Manoeuvres: what the ego does sideways, with the parked car as object of NUDGE.
STRAIGHT, NUDGE, LEFT_TURN, RIGHT_TURN = range(4)
