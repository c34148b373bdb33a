"""Print the prefix into which the ROS 2 wheels are installed, or nothing when there are none.

In pip's isolated build environment this prefix is not `sys.prefix`, so it is derived from the wheel's own files.
"""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

MARKER = "share/rosidl_cmake/cmake/rosidl_cmakeConfig.cmake"


def ros_wheels_prefix() -> str:
    try:
        wheel = distribution("ros-rosidl-cmake")
    except PackageNotFoundError:
        return ""
    config = next(file for file in wheel.files or () if str(file).endswith(MARKER))
    return str(Path(str(wheel.locate_file(config))).resolve().parents[len(Path(MARKER).parts) - 1])


print(ros_wheels_prefix())
