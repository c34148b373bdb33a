"""Reading a configuration file so that nothing in it is ignored silently. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from flashdrive_ros.model.checkpoint_files import Fault

MOST = 1_000_000
"""Largest count that makes sense where nothing else is said; a wrong one must not fill the memory."""
LARGEST = 1e30
"""Beyond this a number is a mistake, and arithmetic with it overflows."""
REQUIRED = object()
"""Default of a field that must be there."""


class Fields:
    """A nested JSON object that remembers what was read of it and what was wrong."""

    def __init__(self, file: Path, values: dict[str, Any]) -> None:
        self.file = file
        self.values = values
        self.faults: list[Fault] = []
        self._read: set[str] = set()

    def get(self, *path: str) -> Any:
        """The value at `path`, None when it is not there."""
        self._read.add(".".join(path))
        value: Any = self.values
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def number(self, *path: str, default: Any = REQUIRED) -> float:
        """A finite number above zero. On a fault 1, so that reading can go on and name all faults."""
        return self._checked(path, default, 1.0, _is_number, "a number above 0")

    def count(self, *path: str, most: int = MOST, default: Any = REQUIRED) -> int:
        """A whole number from 1 to `most`, with the same rule."""

        def fits(value: Any) -> bool:
            return _is_whole(value) and 1 <= value <= most

        return int(self._checked(path, default, 1, fits, f"a whole number from 1 to {most}"))

    def real(self, *path: str, default: Any = REQUIRED) -> float:
        """Any finite number."""
        return self._checked(path, default, 0.0, _is_real, "a number")

    def three_numbers(self, *path: str, default: Any = REQUIRED) -> tuple[float, float, float]:
        """A list of three finite numbers: x, y, z."""

        def fits(value: Any) -> bool:
            return isinstance(value, list) and len(value) == 3 and all(_is_real(item) for item in value)

        first, second, third = self._checked(path, default, [0.0] * 3, fits, "a list of 3 numbers")
        return float(first), float(second), float(third)

    def indices(self, *path: str, below: int, default: Any = REQUIRED) -> tuple[int, ...]:
        """A list of different whole numbers from 0 on, ascending, all `below` a number."""

        def fits(value: Any) -> bool:
            if not isinstance(value, list) or not value or not all(_is_whole(item) for item in value):
                return False
            return sorted(set(value)) == value and value[0] >= 0 and value[-1] < below

        expected = f"ascending whole numbers from 0 to {below - 1}"
        return tuple(int(item) for item in self._checked(path, default, [0], fits, expected))

    def flag(self, *path: str, default: Any = REQUIRED) -> bool:
        """True or false."""
        return self._checked(path, default, False, lambda value: isinstance(value, bool), "true or false")

    def require(self, path: Sequence[str], allowed: tuple[Any, ...]) -> None:
        """A fault when the field is there with a value other than `allowed`."""
        value = self.get(*path)
        if value is not None and value not in allowed:
            self.fault(path, f"{value!r}", " or ".join(repr(item) for item in allowed))

    def fault(self, path: Sequence[str], found: str, expected: str) -> None:
        """Note a wrong value."""
        self.faults.append(Fault(self.file, f"{'.'.join(path)} {found}", expected))

    def unknown(self, not_needed: Sequence[str]) -> list[str]:
        """Fields that were neither read nor fit a pattern of `not_needed`."""
        return [
            name
            for name in leaves(self.values)
            if name not in self._read and not any(fnmatchcase(name, pattern) for pattern in not_needed)
        ]

    def _checked(self, path: tuple[str, ...], default: Any, fallback: Any, fits: Any, expected: str) -> Any:
        value = self.get(*path)
        if value is None and default is not REQUIRED:
            return default
        if value is None:
            self.faults.append(Fault(self.file, f"no field {'.'.join(path)}", expected))
            return fallback
        if not fits(value):
            self.fault(path, repr(value)[:60], expected)
            return fallback
        return value


def leaves(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted names of all values that are not objects themselves."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _is_number(value: Any) -> bool:
    return _is_real(value) and value > 0


def _is_whole(value: Any) -> bool:
    return _is_real(value) and value == int(value)
