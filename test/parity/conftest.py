"""Parity tests share a tiny model and a dense reference."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# Test modules are imported one by one (importlib mode), so their helpers are found through the path.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Tiny matrices on several threads wait for each other most of the time."""
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
