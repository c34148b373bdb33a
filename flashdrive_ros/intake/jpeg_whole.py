"""Finds JPEGs that decode without an error although a part of their picture is missing.

libjpeg fills what is missing with mid grey and only warns, and Pillow does not pass the warning on. A lost packet of a
camera stream and a cut file in a buffer of fixed size look like that.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flashdrive_ros.intake.pixels import Pixels

_END_OF_IMAGE = b"\xff\xd9"
_START_OF_SCAN = b"\xff\xda"
_RESTART_0 = 0xD0
_SOS, _DRI = 0xDA, 0xDD
_FRAME_HEADERS = (0xC0, 0xC1, 0xC2)
_FILLER = 128
_SURPLUS = b"\x00" + b"\x55" * 63
"""Entropy-coded bits that are no run of zeros; the leading 0 keeps a cut 0xff from becoming a marker."""


def missing_markers(content: bytes) -> str | None:
    """What the markers of a JPEG say is missing, None when they are whole: the end, or restart intervals in between."""
    end = content.rfind(_END_OF_IMAGE)
    if end < content.rfind(_START_OF_SCAN):
        return "no end marker after the last scan"
    segments = _segments(content)
    scan = segments.get(_SOS)
    if scan is None or _START_OF_SCAN in content[scan:end]:
        return None  # restart markers of several scans are not worth counting: no camera sends such files
    data = np.frombuffer(content, np.uint8)[scan:end]
    after_ff = data[1:][data[:-1] == 0xFF]
    found = after_ff[(after_ff >= _RESTART_0) & (after_ff < _RESTART_0 + 8)] - _RESTART_0
    expected = _restart_markers(content, segments)
    if len(found) == expected and np.array_equal(found, np.arange(expected) % 8):
        return None
    return f"{len(found)} restart markers, expected {expected} in order"


def _segments(content: bytes) -> dict[int, int]:
    """Marker -> offset of its segment's length field, for the segments before the picture's data."""
    offsets: dict[int, int] = {}
    position = 2
    while position + 4 <= len(content) and content[position] == 0xFF and _SOS not in offsets:
        offsets[content[position + 1]] = position + 2
        position += 2 + int.from_bytes(content[position + 2 : position + 4], "big")
    return offsets


def _restart_markers(content: bytes, segments: dict[int, int]) -> int:
    """How many restart markers a scan of all components has: one between every two intervals of `DRI` blocks."""
    frame = next((segments[marker] for marker in _FRAME_HEADERS if marker in segments), None)
    if frame is None or _DRI not in segments:
        return 0
    interval = int.from_bytes(content[segments[_DRI] + 2 : segments[_DRI] + 4], "big")
    height, width = (int.from_bytes(content[frame + k : frame + k + 2], "big") for k in (3, 5))
    components = content[frame + 7]
    sampling = [content[frame + 9 + 3 * k] for k in range(components)] if components > 1 else [0x11]
    block_width = 8 * max(factor >> 4 for factor in sampling)
    block_height = 8 * max(factor & 15 for factor in sampling)
    blocks = -(-width // block_width) * -(-height // block_height)
    return -(-blocks // interval) - 1 if interval else 0


def ends_early(content: bytes, pixels: Pixels, progressive: bool, decode: Callable[[bytes], Pixels]) -> bool:
    """True when the picture's data end before its last block; a loss inside that one block is not noticed.

    A picture that is whole does not change when surplus data stand before its end marker; one that is not takes them
    for its missing blocks. That second decoding is only made where the last pixel looks like filler, and for
    progressive files, where the filler is spread over the picture.
    """
    if not progressive and np.any(pixels[-1, -1] != _FILLER):
        return False
    end = content.rfind(_END_OF_IMAGE)
    return not np.array_equal(decode(content[:end] + _SURPLUS + content[end:]), pixels)
