"""What a measurement was made on: processor, memory in use, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from flashdrive_ros import __version__

PACKAGES = ("numpy", "onnxruntime", "pillow", "tokenizers")
REPOSITORY = Path(__file__).resolve().parents[2]


def machine() -> dict[str, Any]:
    """Processor, cores that this process may use, and how busy they are with other things right now."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "load_average_1_min": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Python, this package and the packages that take the time."""
    return {"python": platform.python_version(), "flashdrive_ros": __version__} | {
        name: _version(name) for name in PACKAGES
    }


def commit() -> str:
    """Commit of the source tree this runs from, "+changes" behind it when tracked files differ; else the version."""
    if not (REPOSITORY / "package.xml").is_file():
        return f"flashdrive_ros {__version__}"
    head = _git("rev-parse", "HEAD")
    if not head:
        return f"flashdrive_ros {__version__}"
    return f"{head}+changes" if _git("status", "--porcelain", "--untracked-files=no") else head


def resident_memory_mb() -> dict[str, float]:
    """Memory of this process in MB (10^6 bytes): now, and the most so far."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    kib = {
        line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.startswith(("VmRSS", "VmHWM"))
    }
    return {"now": round(kib["VmRSS"] * 1.024e-3, 1), "peak": round(kib["VmHWM"] * 1.024e-3, 1)}


def _cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()  # Arm kernels name no model


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _git(*words: str) -> str:
    """Output of a git command in the source tree, empty where git or its repository is missing."""
    try:
        finished = subprocess.run(
            ["git", "-C", str(REPOSITORY), *words], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return finished.stdout.strip() if finished.returncode == 0 else ""
