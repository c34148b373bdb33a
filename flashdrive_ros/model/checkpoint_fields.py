"""Reading a configuration file so that nothing in it is ignored silently. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from flashdrive_ros.model.checkpoint_files import Fault

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

    def count(self, *path: str, default: Any = REQUIRED) -> int:
        """A whole number above zero, with the same rule."""
        return int(self._checked(path, default, 1, _is_count, "a whole number above 0"))

    def real(self, *path: str, default: Any = REQUIRED) -> float:
        """Any finite number."""
        return self._checked(path, default, 0.0, _is_real, "a number")

    def numbers(self, *path: str, length: int | None = None, default: Any = REQUIRED) -> tuple[Any, ...]:
        """A list of numbers, of `length` if that is given."""

        def fits(value: Any) -> bool:
            is_list = isinstance(value, list | tuple) and len(value) > 0 and all(_is_real(item) for item in value)
            return is_list and length in (None, len(value))

        expected = "a list of numbers" if length is None else f"a list of {length} numbers"
        return tuple(self._checked(path, default, [0] * (length or 1), fits, expected))

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
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_number(value: Any) -> bool:
    return _is_real(value) and value > 0


def _is_count(value: Any) -> bool:
    return _is_number(value) and value == int(value)
