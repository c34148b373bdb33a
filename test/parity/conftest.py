"""Parity tests share a tiny model and a dense reference."""

from __future__ import annotations

import sys
from pathlib import Path

# Test modules are imported one by one (importlib mode), so their helpers are found through the path.
sys.path.insert(0, str(Path(__file__).parent))
