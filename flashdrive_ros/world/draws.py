"""Random numbers that are a function of the scene's seed and a name, so that adding a draw changes no other."""

from __future__ import annotations

import zlib

import torch
from torch import Tensor

_FIRST = -0x40A7B892E31B1A47
_SECOND = -0x6B2FB644ECCEEE15
_STEP = -0x61C8864680B583EB


@torch.compiler.disable  # type: ignore[untyped-decorator]  # its 64-bit constants do not survive compilation
def uniform(seeds: Tensor, name: str, count: int) -> Tensor:
    """[B, count] float64 in [0, 1) for int64 seeds [B]; the same numbers on every device."""
    salted = _mix(seeds * _STEP + zlib.crc32(name.encode()))
    steps = torch.arange(1, count + 1, device=seeds.device, dtype=torch.int64) * _STEP
    return _shift(_mix(salted[:, None] + steps), 11).to(torch.float64) * 2.0**-53


def between(seeds: Tensor, name: str, count: int, low: float, high: float) -> Tensor:
    """[B, count] float64, uniform in [low, high)."""
    return low + (high - low) * uniform(seeds, name, count)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64; int64 multiplication wraps as it needs."""
    x = (x ^ _shift(x, 30)) * _FIRST
    x = (x ^ _shift(x, 27)) * _SECOND
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; torch's is arithmetic."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
