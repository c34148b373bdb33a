"""Route text: what a navigation system wrote, made safe to put into a prompt."""

from __future__ import annotations

from flashdrive_ros.reasons import InputRefused, Reason

MAX_CHARACTERS = 1000


def clean_route(text: str, source: str = "route") -> str:
    """One line of plain text: control characters become spaces, runs of spaces one, and both ends are stripped.

    Angle brackets become spaces as well: `<|...|>` are the model's own control tokens, and no direction needs them.
    Raises InputRefused (ROUTE_TOO_LONG) beyond 1000 characters; whether it fits the prompt is the planner's check.
    """
    plain = "".join(character if character.isprintable() and character not in "<>" else " " for character in text)
    cleaned = " ".join(plain.split())
    if len(cleaned) > MAX_CHARACTERS:
        raise InputRefused(Reason.ROUTE_TOO_LONG, source, f"{len(cleaned)} characters, at most {MAX_CHARACTERS}")
    return cleaned
