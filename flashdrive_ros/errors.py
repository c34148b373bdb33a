"""The exceptions of this package: one type per kind of mistake, each a single line that says what to do."""

from __future__ import annotations

from typing import Any


class FlashdriveError(Exception):
    """Base of every expected failure; `cli.main` prints its one line and exits with status 1."""


class ParameterError(FlashdriveError):
    """A parameter or a command-line option has an unknown name, a wrong type or a value out of range."""


class ModelFileError(FlashdriveError):
    """A model folder, manifest, graph, weight or tokenizer file is missing, damaged or of another model."""


class BagError(FlashdriveError):
    """A bag cannot be opened, lacks a topic or holds no usable message."""


class DatasetError(FlashdriveError):
    """A public data set given to a converter is incomplete or not what its format promises."""


class EngineError(FlashdriveError):
    """A stage engine was called with a shape or type its manifest does not allow."""


class PartialResult(FlashdriveError):
    """A command did its work on the readable part of a damaged input.

    `result` is what the command would have returned; it is given out as usual before this line and exit status 1.
    """

    def __init__(self, message: str, result: dict[str, Any]) -> None:
        super().__init__(message)
        self.result = result
