"""Where the files beside the code are: model, config, launch and demo files of a checkout or of an installation."""

from __future__ import annotations

from pathlib import Path

from flashdrive_ros.errors import ModelFileError


def resource_path(relative: str) -> Path:
    """Absolute path of `relative`, for example "resource/models/nano" or "config/nano.yaml".

    A source checkout holds it beside the Python package. pip and colcon both install the package into
    `<prefix>/lib/.../flashdrive_ros` and these files into `<prefix>/share/flashdrive_ros`, so the nearest folder above
    the package that holds the file is the right one, also with several prefixes on the path.
    Raises ModelFileError naming the path when no such file was shipped.
    """
    package_folder = Path(__file__).resolve().parent
    checkout = package_folder.parent
    if (checkout / "package.xml").is_file():
        candidates = [checkout / relative]
    else:
        candidates = [prefix / "share" / "flashdrive_ros" / relative for prefix in package_folder.parents]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise ModelFileError(f"{relative}: not found in {checkout}; install the package again or check the name")
