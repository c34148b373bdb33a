"""Synthetic checkpoints for the tests of reading them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashdrive_ros.model.config import ALPAMAYO_1_5

EditJson = Callable[[Path, Callable[[dict[str, Any]], object]], None]


@pytest.fixture(scope="session")
def synthetic_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole two-layer checkpoint of 42 MB with its drafter beside it. Not to be changed."""
    pytest.importorskip("tokenizers")
    from flashdrive_ros.training.make_checkpoint import write_checkpoint
    from flashdrive_ros.training.synthetic_config import scaled

    out = tmp_path_factory.mktemp("published") / "Alpamayo"
    write_checkpoint(scaled(ALPAMAYO_1_5, 2, small=True), out, seed=0)
    return out


@pytest.fixture
def checkpoint(synthetic_checkpoint: Path, tmp_path: Path) -> Path:
    """A copy of it whose files may be replaced (they are hard links: never write into one)."""
    for suffix in ("", "-DFlash"):
        target = tmp_path / f"Alpamayo{suffix}"
        target.mkdir()
        for file in synthetic_checkpoint.with_name(f"Alpamayo{suffix}").iterdir():
            os.link(file, target / file.name)
    return tmp_path / "Alpamayo"


@pytest.fixture
def edit_json() -> EditJson:
    """Replace a JSON file by an edited one."""

    def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
        values = json.loads(path.read_text())
        change(values)
        path.unlink()
        path.write_text(json.dumps(values))

    return edit
