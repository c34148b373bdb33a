"""Which inputs have come, and which have gone silent, on a steady clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SilentInput:
    """An input that came once and then stopped."""

    name: str
    silence_s: float


class InputWatch:
    """Arrival times of the inputs by name. Written by the intake thread, read by the planning thread too."""

    def __init__(self, names: tuple[str, ...], timeout_s: float) -> None:
        self._names = names
        self._timeout_s = timeout_s
        self._arrived_s: dict[str, float] = {}

    def clear(self) -> None:
        """Forget every arrival, at activation."""
        self._arrived_s = {}

    def arrived(self, name: str, now_s: float) -> None:
        """A message of input `name` was accepted."""
        self._arrived_s[name] = now_s

    def missing(self) -> list[str]:
        """Inputs that never came."""
        return [name for name in self._names if name not in self._arrived_s]

    def silent(self, now_s: float) -> list[SilentInput]:
        """Inputs that came and have been silent for longer than the time-out."""
        silences = [(name, now_s - self._arrived_s[name]) for name in self._names if name in self._arrived_s]
        return [SilentInput(name, silence_s) for name, silence_s in silences if silence_s > self._timeout_s]
