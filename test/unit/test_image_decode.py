"""Camera pictures: every documented encoding gives the right colours, everything else is refused by name."""

from __future__ import annotations

import array
import contextlib
import io
import struct
import zlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from flashdrive_ros.intake.image_decode import decode_compressed, decode_raw
from flashdrive_ros.intake.messages import image_from_message, stamp_ns
from flashdrive_ros.reasons import InputRefused, Reason


def raw(data, encoding, width, height, step):
    return decode_raw(data, encoding, width, height, step, 0, "front_wide")


def refusal(call):
    with pytest.raises(InputRefused) as caught:
        call()
    assert caught.value.refusal.source == "front_wide"
    return caught.value.refusal


def noise(height, width, channels=3):
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


def encoded(pixels, file_format, **options):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, file_format, **options)
    return stream.getvalue()


def png(header, *, rows=b""):
    """A PNG with the given IHDR fields (width, height, depth, colour type), whatever its rows."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    ihdr = struct.pack(">IIBBBBB", *header, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", ihdr) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# raw layouts


@pytest.mark.parametrize(
    ("encoding", "channels"),
    [("rgb8", 3), ("bgr8", 3), ("rgba8", 4), ("bgra8", 4), ("mono8", 1), ("yuyv", 2), ("uyvy", 2)],
)
def test_padded_rows_give_the_unpadded_picture(encoding, channels):
    pixels = noise(4, 958, channels)
    row = 958 * channels
    padded = np.full((4, row + 6), 77, np.uint8)
    padded[:, :row] = pixels.reshape(4, row)

    expected = raw(pixels.tobytes(), encoding, 958, 4, row)
    np.testing.assert_array_equal(raw(padded.tobytes(), encoding, 958, 4, row + 6), expected)
    assert expected.shape == (4, 958, 3)
    assert expected.dtype == np.uint8


def test_unpadded_rgb8_is_not_copied():
    data = noise(6, 8)
    assert np.shares_memory(raw(data, "rgb8", 8, 6, 24), data)


@pytest.mark.parametrize(
    "container", [bytes, bytearray, lambda b: array.array("B", b), memoryview, lambda b: np.frombuffer(b, np.uint8)]
)
def test_every_container_of_bytes_is_accepted(container):
    pixels = noise(2, 3)
    np.testing.assert_array_equal(raw(container(pixels.tobytes()), "rgb8", 3, 2, 9), pixels)


def test_a_strided_array_is_accepted():
    pixels = noise(2, 3)
    twice = np.repeat(pixels.reshape(-1), 2)
    np.testing.assert_array_equal(raw(twice[::2], "rgb8", 3, 2, 9), pixels)


@pytest.mark.parametrize("data", [[1, 2, 3], None, "abc", array.array("H", [1, 2, 3]), np.zeros(3)])
def test_data_that_is_not_bytes_is_refused(data):
    assert refusal(lambda: raw(data, "rgb8", 1, 1, 3)).reason is Reason.IMAGE_LAYOUT


@pytest.mark.parametrize(
    ("width", "height", "step", "size"),
    [
        (4, 2, 0, 24),  # step 0
        (4, 2, 12, 23),  # one byte short
        (4, 2, 12, 25),  # one byte long
        (4, 0, 12, 0),
        (0, 2, 0, 0),
        (4, 2, 11, 22),  # step shorter than a row
        (-4, 2, 12, 24),
        (4, 2, 24, 24),  # step of two rows, data of one
        (100_000, 100_000, 300_000, 24),
        (4, 2, 12, 0),
    ],
)
def test_inconsistent_layout_is_refused(width, height, step, size):
    assert refusal(lambda: raw(bytes(size), "rgb8", width, height, step)).reason is Reason.IMAGE_LAYOUT


def test_odd_width_of_pixel_pairs_is_refused():
    assert "odd" in refusal(lambda: raw(bytes(6), "yuyv", 3, 1, 6)).detail


@given(
    st.binary(max_size=64),
    st.sampled_from(["rgb8", "bgra8", "mono8", "yuyv"]),
    st.integers(-2, 9),
    st.integers(-2, 9),
    st.integers(-2, 40),
)
@settings(max_examples=200, deadline=None)
def test_any_layout_decodes_whole_or_is_refused(data, encoding, width, height, step):
    try:
        pixels = raw(data, encoding, width, height, step)
    except InputRefused:
        return
    assert pixels.shape == (height, width, 3)


# raw colours


def test_red_is_red_in_every_encoding():
    red = {
        "rgb8": b"\xff\x00\x00",
        "bgr8": b"\x00\x00\xff",
        "rgba8": b"\xff\x00\x00\x80",
        "bgra8": b"\x00\x00\xff\x80",
    }
    for encoding, pixel in red.items():
        assert raw(pixel * 4, encoding, 2, 2, 2 * len(pixel)).tolist() == [[[255, 0, 0]] * 2] * 2, encoding


def test_grey_has_three_equal_channels():
    assert raw(bytes([0, 130, 255]), "mono8", 3, 1, 3).tolist() == [[[0, 0, 0], [130, 130, 130], [255, 255, 255]]]


# BT.601 studio range by hand: R = 1.164383 (Y-16) + 1.596027 (V-128), B = 1.164383 (Y-16) + 2.017232 (U-128) and
# G = 1.164383 (Y-16) - 0.391762 (U-128) - 0.812968 (V-128). For example Y 81, U 90, V 240:
# R = 75.685 + 178.755 = 254.44, G = 75.685 + 14.887 - 91.052 < 0, B = 75.685 - 76.655 < 0.
YUV_TO_RGB = {
    (81, 90, 240): (254, 0, 0),
    (145, 54, 34): (0, 255, 1),
    (41, 240, 110): (0, 0, 255),
    (235, 128, 128): (255, 255, 255),
    (16, 128, 128): (0, 0, 0),
    (126, 128, 128): (128, 128, 128),
    (0, 128, 128): (0, 0, 0),
    (255, 128, 128): (255, 255, 255),
}


@pytest.mark.parametrize("encoding", ["yuyv", "yuv422_yuy2", "uyvy", "yuv422"])
@pytest.mark.parametrize(("yuv", "rgb"), YUV_TO_RGB.items())
def test_yuv_pixel_pairs_are_converted_by_the_documented_formula(encoding, yuv, rgb):
    y, u, v = yuv
    pair = [y, u, y, v] if encoding in ("yuyv", "yuv422_yuy2") else [u, y, v, y]
    assert raw(bytes(pair), encoding, 2, 1, 4).tolist() == [[list(rgb), list(rgb)]]


def test_the_old_and_new_name_of_a_yuv_layout_agree_and_keep_the_pixel_order():
    data = bytes([81, 90, 235, 240, 41, 240, 16, 110] * 2)  # 4 x 2, YUYV
    assert raw(data, "yuyv", 4, 2, 8).tolist() == raw(data, "yuv422_yuy2", 4, 2, 8).tolist()
    assert raw(data, "uyvy", 4, 2, 8).tolist() == raw(data, "yuv422", 4, 2, 8).tolist()
    # First pixel of the pair is the one with luma 81, the second the brighter one.
    assert raw(data, "yuyv", 4, 2, 8)[0, 0].tolist() == [254, 0, 0]
    assert raw(data, "yuyv", 4, 2, 8)[0, 1, 0] == 255


@pytest.mark.parametrize("encoding", ["16UC1", "mono16", "32FC1", "rgb16", "bayer_rggb8", "8UC3", "", "RGB8"])
def test_other_raw_encodings_are_refused_by_name(encoding):
    refused = refusal(lambda: raw(bytes(24), encoding, 2, 2, 12))
    assert refused.reason is Reason.IMAGE_ENCODING
    assert f"'{encoding}'" in refused.detail


# compressed


def test_png_is_decoded_exactly_in_rgb_order():
    pixels = noise(5, 7)
    np.testing.assert_array_equal(decode_compressed(encoded(pixels, "PNG"), "png", "front_wide"), pixels)


def test_jpeg_of_a_flat_colour_keeps_it():
    pixels = np.full((16, 16, 3), (200, 40, 90), np.uint8)
    for container in (bytes, bytearray, lambda b: array.array("B", b), lambda b: np.frombuffer(b, np.uint8)):
        decoded = decode_compressed(
            container(encoded(pixels, "JPEG", quality=95)), "rgb8; jpeg compressed bgr8", "front_wide"
        )
        assert np.abs(decoded.astype(int) - pixels).max() <= 3


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "LA", "1"])
def test_grey_palette_and_alpha_pngs_become_rgb(mode):
    stream = io.BytesIO()
    Image.new("RGB", (4, 3), (255, 255, 255)).convert(mode).save(stream, "PNG")
    assert decode_compressed(stream.getvalue(), "png", "front_wide").tolist() == [[[255, 255, 255]] * 4] * 3


def test_the_format_text_does_not_override_the_file():
    pixels = noise(5, 7)
    np.testing.assert_array_equal(decode_compressed(encoded(pixels, "PNG"), "jpeg", "front_wide"), pixels)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_never_applied(orientation):
    picture = Image.fromarray(noise(16, 24))
    exif = picture.getexif()
    exif[0x0112] = orientation
    plain, tagged = io.BytesIO(), io.BytesIO()
    picture.save(plain, "JPEG")
    picture.save(tagged, "JPEG", exif=exif)
    decoded = decode_compressed(tagged.getvalue(), "jpeg", "front_wide")
    assert decoded.shape == (16, 24, 3)
    np.testing.assert_array_equal(decoded, decode_compressed(plain.getvalue(), "jpeg", "front_wide"))


@pytest.mark.parametrize(
    "format",
    ["16UC1; compressedDepth png", "32FC1; compressedDepth", "16UC1; png compressed ", "mono16; png compressed"],
)
def test_depth_and_16_bit_transports_are_refused_without_decoding(format):
    refused = refusal(lambda: decode_compressed(bytes(12) + b"\x89PNG", format, "front_wide"))
    assert refused.reason is Reason.IMAGE_ENCODING
    assert format in refused.detail


@pytest.mark.parametrize("colour_type", [0, 2])
def test_a_16_bit_png_is_refused_although_pillow_would_reduce_it(colour_type):
    channels = 3 if colour_type == 2 else 1
    content = png((2, 2, 16, colour_type), rows=(b"\x00" + b"\x12\x34" * 2 * channels) * 2)
    with Image.open(io.BytesIO(content)) as picture:
        picture.load()
    refused = refusal(lambda: decode_compressed(content, "png", "front_wide"))
    assert refused.reason is Reason.IMAGE_ENCODING
    assert "16-bit" in refused.detail


def test_a_bayer_mosaic_in_a_png_is_not_taken_for_a_grey_picture():
    refused = refusal(
        lambda: decode_compressed(encoded(noise(4, 4)[..., 0], "PNG"), "bayer_rggb8; png compressed", "front_wide")
    )
    assert refused.reason is Reason.IMAGE_ENCODING


@pytest.mark.parametrize("size", [(8001, 8001), (60_000, 60_000)])
def test_a_decompression_bomb_is_refused_before_decoding(size):
    refused = refusal(lambda: decode_compressed(png((*size, 8, 2)), "png", "front_wide"))
    assert refused.reason in (Reason.IMAGE_LAYOUT, Reason.IMAGE_UNDECODABLE)


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF89a" + bytes(40), bytes(1000)]
)
def test_bytes_that_are_no_picture_are_refused(data):
    assert refusal(lambda: decode_compressed(data, "jpeg", "front_wide")).reason is Reason.IMAGE_UNDECODABLE


@given(
    st.binary(max_size=300), st.sampled_from([b"", b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", png((4, 4, 8, 2))[:40]])
)
@settings(max_examples=200, deadline=None)
def test_random_bytes_never_raise_anything_else(tail, head):
    with contextlib.suppress(InputRefused):
        decode_compressed(head + tail, "jpeg", "front_wide")


@pytest.mark.parametrize(("file_format", "options"), [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {})])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.7, 0.9, 0.97])
def test_a_cut_picture_is_refused(file_format, options, kept):
    content = encoded(noise(64, 64), file_format, **options)
    cut = content[: int(len(content) * kept)]
    assert refusal(lambda: decode_compressed(cut, "jpeg", "front_wide")).reason is Reason.IMAGE_UNDECODABLE


JPEG_NAMES = ["baseline", "restarts", "restarts, odd size", "grey", "progressive"]


def jpegs():
    """Baseline, with restart markers, with 4:2:0 colour in odd sizes, grey, progressive."""
    yield encoded(noise(256, 256), "JPEG")
    yield encoded(noise(256, 256), "JPEG", restart_marker_blocks=5)
    yield encoded(noise(251, 263), "JPEG", subsampling=2, restart_marker_rows=1)
    yield encoded(noise(256, 256)[..., 0], "JPEG")
    yield encoded(noise(256, 256), "JPEG", progressive=True)


@pytest.mark.parametrize("content", jpegs(), ids=JPEG_NAMES)
@pytest.mark.parametrize("kept", [0.4, 0.7, 0.9, 0.97])
def test_a_cut_jpeg_with_padding_or_an_end_marker_put_on_is_refused(content, kept):
    cut = content[: max(int(len(content) * kept), content.find(b"\xff\xda") + 40)]
    for patched in (cut + bytes(5000), cut + b"\xff\xd9", cut + b"\xff\xd9" + bytes(100)):
        refused = refusal(lambda patched=patched: decode_compressed(patched, "jpeg", "front_wide"))
        assert refused.reason is Reason.IMAGE_UNDECODABLE


@pytest.mark.parametrize("content", list(jpegs())[:4], ids=JPEG_NAMES[:4])
def test_a_jpeg_that_lost_a_packet_in_the_middle_is_refused(content):
    middle = len(content) * 6 // 10
    holed = content[:middle] + content[middle + len(content) // 5 :]
    assert refusal(lambda: decode_compressed(holed, "jpeg", "front_wide")).reason is Reason.IMAGE_UNDECODABLE


@pytest.mark.parametrize("content", jpegs(), ids=JPEG_NAMES)
def test_whole_jpegs_of_every_kind_pass(content):
    with Image.open(io.BytesIO(content)) as picture:
        expected = np.asarray(picture.convert("RGB"))
    np.testing.assert_array_equal(decode_compressed(content, "jpeg", "front_wide"), expected)


@pytest.mark.parametrize("grey", [127, 128, 129])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"restart_marker_blocks": 3}])
def test_whole_pictures_that_look_like_filler_pass(grey, options):
    flat = encoded(np.full((40, 24, 3), grey, np.uint8), "JPEG", **options)
    for content in (flat, flat + bytes(50)):  # padding after the end is harmless
        assert np.all(decode_compressed(content, "jpeg", "front_wide") == grey)


def test_a_cut_picture_is_refused_although_another_library_allowed_it(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    content = encoded(noise(64, 64), "JPEG")
    refusal(lambda: decode_compressed(content[: len(content) // 2], "jpeg", "front_wide"))


def test_real_camera_pictures_decode_whole_and_are_refused_without_their_last_30_percent(shared_data: Path):
    for path in sorted(shared_data.glob("tri_dgp_test_scene/scene_02/rgb/*/*.jpg"))[:4]:
        content = path.read_bytes()
        assert decode_compressed(content, "jpeg", "front_wide").shape == (1216, 1936, 3)
        cut = content[: int(len(content) * 0.7)]
        assert refusal(lambda cut=cut: decode_compressed(cut, "jpeg", "front_wide")).reason is Reason.IMAGE_UNDECODABLE


# messages


def header(sec=12, nanosec=345):
    return SimpleNamespace(stamp=SimpleNamespace(sec=sec, nanosec=nanosec), frame_id="camera")


def test_messages_are_told_apart_by_their_fields():
    pixels = noise(2, 3)
    image = SimpleNamespace(
        header=header(), height=2, width=3, encoding="bgr8", is_bigendian=0, step=9, data=pixels[..., ::-1].tobytes()
    )
    compressed = SimpleNamespace(header=header(), format="png", data=np.frombuffer(encoded(pixels, "PNG"), np.uint8))
    np.testing.assert_array_equal(image_from_message(image, "front_wide"), pixels)
    np.testing.assert_array_equal(image_from_message(compressed, "front_wide"), pixels)
    assert stamp_ns(image.header) == 12_000_000_345
