"""Camera pictures to RGB pixels: JPEG and PNG through Pillow, raw encodings through numpy.

Nothing in a message is trusted: every size is checked against the data, pictures are limited to 64 megapixels, and a
picture that does not decode to its last row is refused. All functions raise `InputRefused` and nothing else.

Rules fixed here:
- Sensor orientation: EXIF orientation is never applied, because a driving camera is calibrated for its sensor's rows
  and columns, and decoders differ in whether they apply it.
- One rule for 4:2:2 YUV: ITU-R BT.601 with studio range (Y 16..235, chroma 16..240), which is what most USB cameras
  send and what OpenCV's conversions, and so cv_bridge, assume for the same encodings.
- 8 bits per channel: 16-bit and depth pictures are refused, naming the encoding.

Known limit: bits that flip inside a JPEG without changing its length are not noticed; JPEG has no checksum.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

from flashdrive_ros.intake.jpeg_whole import ends_early, missing_markers
from flashdrive_ros.intake.pixels import Pixels
from flashdrive_ros.reasons import InputRefused, Reason

MAX_PIXELS = 64_000_000
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_JPEG_START = b"\xff\xd8\xff"
_NOT_A_CAMERA = ("16uc1", "16sc1", "mono16", "32fc1", "64fc1")


def decode_compressed(data: Any, format: str, source: str) -> Pixels:
    """Decode a JPEG or PNG (`data` of a CompressedImage) to [height, width, 3] RGB, read-only.

    `format` is only read for what the file cannot say itself (depth transports, Bayer mosaics); the file's own
    signature decides between JPEG and PNG. Raises InputRefused (IMAGE_ENCODING, IMAGE_LAYOUT, IMAGE_UNDECODABLE).
    """
    words = format.lower()
    original = words.split(";")[0].strip()
    if "compresseddepth" in words or original in _NOT_A_CAMERA:
        detail = f"'{format}' is a depth or 16-bit transport, not a driving camera's"
        raise InputRefused(Reason.IMAGE_ENCODING, source, detail)
    content = byte_view(data, source).tobytes()
    _check_signature(content, format, source)
    is_jpeg = content.startswith(_JPEG_START)
    try:
        missing = missing_markers(content) if is_jpeg else None
        if missing is None:
            pixels, progressive = _read(content, format, source)
            if not is_jpeg or not ends_early(content, pixels, progressive, lambda c: _read(c, format, source)[0]):
                return pixels
            missing = "its data end before its last block"
    except InputRefused:
        raise
    except Exception as error:  # untrusted bytes: Pillow raises a dozen types (OSError, SyntaxError, struct.error, ...)
        missing = f"{type(error).__name__}: {error}"
    detail = f"'{format}', {len(content)} bytes do not decode to a whole picture: {missing}"
    raise InputRefused(Reason.IMAGE_UNDECODABLE, source, detail)


def _read(content: bytes, format: str, source: str) -> tuple[Pixels, bool]:
    """RGB pixels of a JPEG or PNG, and whether it is a progressive JPEG; raises what Pillow raises, or InputRefused."""
    # A truncated picture must raise; some other library in the process may have switched this on.
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    with Image.open(io.BytesIO(content), formats=("JPEG", "PNG")) as picture:
        _check_size(picture.width, picture.height, source)
        if picture.mode == "CMYK" or (format.lower().startswith("bayer") and picture.mode == "L"):
            detail = f"'{format}' holds a {picture.mode} picture, expected RGB or grey"
            raise InputRefused(Reason.IMAGE_ENCODING, source, detail)
        pixels = np.asarray(picture if picture.mode == "RGB" else picture.convert("RGB"))
        return pixels, bool(picture.info.get("progressive"))


def decode_raw(data: Any, encoding: str, width: int, height: int, step: int, is_bigendian: int, source: str) -> Pixels:
    """Turn the fields of a sensor_msgs/Image into [height, width, 3] RGB.

    rgb8 without row padding is a view of `data`, everything else one copy. `is_bigendian` has no meaning for 8-bit
    channels and is ignored. Raises InputRefused (IMAGE_ENCODING, IMAGE_LAYOUT).
    """
    if encoding not in RAW_ENCODINGS:
        detail = f"encoding '{encoding}' is not a driving camera's; known: {', '.join(RAW_ENCODINGS)}"
        raise InputRefused(Reason.IMAGE_ENCODING, source, detail)
    bytes_per_pixel, to_rgb = RAW_ENCODINGS[encoding]
    width, height, step = int(width), int(height), int(step)
    _check_size(width, height, source)
    row = width * bytes_per_pixel
    content = byte_view(data, source)
    if step < row:
        detail = f"step {step} is less than the {row} bytes of {width} {encoding} pixels"
        raise InputRefused(Reason.IMAGE_LAYOUT, source, detail)
    if content.size != step * height:
        detail = f"{content.size} data bytes, expected step {step} x height {height} = {step * height}"
        raise InputRefused(Reason.IMAGE_LAYOUT, source, detail)
    if bytes_per_pixel == 2 and width % 2:
        raise InputRefused(Reason.IMAGE_LAYOUT, source, f"width {width} is odd; {encoding} stores pixels in pairs")
    return to_rgb(content.reshape(height, step)[:, :row].reshape(height, width, bytes_per_pixel))


def byte_view(data: Any, source: str) -> Pixels:
    """View bytes, bytearray, array('B'), memoryview or a uint8 array as uint8 [n] without copying.

    Raises InputRefused (IMAGE_LAYOUT) for anything whose items are not single bytes.
    """
    try:
        view = memoryview(data)
    except TypeError as error:
        detail = f"image data of type {type(data).__name__} is not a byte buffer"
        raise InputRefused(Reason.IMAGE_LAYOUT, source, detail) from error
    if view.itemsize != 1:
        raise InputRefused(Reason.IMAGE_LAYOUT, source, f"image data items are {view.itemsize} bytes wide, expected 1")
    if view.nbytes == 0:
        return np.empty(0, np.uint8)
    return np.frombuffer(view if view.c_contiguous else view.tobytes(), np.uint8)


def _check_signature(content: bytes, format: str, source: str) -> None:
    if content.startswith(_PNG_SIGNATURE):
        # Pillow silently reduces 16-bit RGB to 8; byte 24 of a PNG is the bit depth of its IHDR.
        if len(content) > 24 and content[24] == 16:
            detail = f"'{format}' holds a 16-bit PNG; a driving camera's has 8 bits"
            raise InputRefused(Reason.IMAGE_ENCODING, source, detail)
    elif not content.startswith(_JPEG_START):
        detail = f"'{format}', {len(content)} bytes starting with 0x{content[:4].hex()} are neither JPEG nor PNG"
        raise InputRefused(Reason.IMAGE_UNDECODABLE, source, detail)


def _check_size(width: int, height: int, source: str) -> None:
    if width <= 0 or height <= 0 or width * height > MAX_PIXELS:
        detail = f"{width} x {height} pixels, expected at least 1 x 1 and at most {MAX_PIXELS} pixels"
        raise InputRefused(Reason.IMAGE_LAYOUT, source, detail)


def _reorder(channels: tuple[int, int, int]) -> Callable[[Pixels], Pixels]:
    def to_rgb(pixels: Pixels) -> Pixels:
        rgb = np.empty((*pixels.shape[:2], 3), np.uint8)
        for target, channel in enumerate(channels):
            rgb[..., target] = pixels[..., channel]
        return rgb

    return to_rgb


def _yuv422(luma: tuple[int, int], chroma: tuple[int, int]) -> Callable[[Pixels], Pixels]:
    """Byte offsets of Y0, Y1 and of U, V inside the four bytes of a pixel pair."""

    def to_rgb(pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        pairs = pixels.reshape(height, width // 2, 4)
        u, v = pairs[..., chroma[0]], pairs[..., chroma[1]]
        chroma_parts = (_RED_V[v], _GREEN_U[u] + _GREEN_V[v], _BLUE_U[u])
        rgb = np.empty((height, width // 2, 2, 3), np.uint8)
        for pixel, offset in enumerate(luma):
            y = _LUMA[pairs[..., offset]]
            for channel, chroma_part in enumerate(chroma_parts):
                rgb[..., pixel, channel] = np.clip((y + chroma_part) >> 5, 0, 255)
        return rgb.reshape(height, width, 3)

    return to_rgb


def _table(factor: float, zero: int, rounding: int = 0) -> NDArray[np.int16]:
    """factor * (byte - zero) for every byte, times 32: all sums of a pixel stay within 16 bits."""
    table: NDArray[np.int16] = np.rint(32 * factor * (np.arange(256) - zero) + rounding).astype(np.int16)
    return table


# BT.601: luma weights 0.299, 0.587, 0.114; 219 steps of luma and 224 of chroma stand for the full range.
_LUMA = _table(255 / 219, 16, rounding=16)
_RED_V = _table(2 * (1 - 0.299) * 255 / 224, 128)
_GREEN_U = _table(-2 * (1 - 0.114) * 0.114 / 0.587 * 255 / 224, 128)
_GREEN_V = _table(-2 * (1 - 0.299) * 0.299 / 0.587 * 255 / 224, 128)
_BLUE_U = _table(2 * (1 - 0.114) * 255 / 224, 128)

_YUYV = (2, _yuv422(luma=(0, 2), chroma=(1, 3)))
_UYVY = (2, _yuv422(luma=(1, 3), chroma=(0, 2)))

RAW_ENCODINGS: dict[str, tuple[int, Callable[[Pixels], Pixels]]] = {
    "rgb8": (3, lambda pixels: pixels),
    "bgr8": (3, _reorder((2, 1, 0))),
    "rgba8": (4, _reorder((0, 1, 2))),
    "bgra8": (4, _reorder((2, 1, 0))),
    "mono8": (1, _reorder((0, 0, 0))),
    "yuyv": _YUYV,
    "yuv422_yuy2": _YUYV,
    "uyvy": _UYVY,
    "yuv422": _UYVY,
}
"""sensor_msgs encoding -> bytes per pixel, conversion of [height, width, bytes] to RGB [height, width, 3]."""
