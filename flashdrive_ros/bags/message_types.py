"""Message types for bags without a ROS installation: the common ones, and this package's own from msg/*.msg."""

from __future__ import annotations

from functools import cache

from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from flashdrive_ros.resources import resource_path


@cache
def message_store() -> Typestore:
    """All message types this package writes, and reads from bags that bring no definitions.

    `message_store().types["std_msgs/msg/Header"]` is the class: every field is a keyword argument, numeric arrays are
    numpy arrays.
    """
    store = get_typestore(Stores.ROS2_KILTED)
    for path in sorted(resource_path("msg").glob("*.msg")):
        store.register(get_types_from_msg(path.read_text(encoding="utf-8"), f"flashdrive_ros/msg/{path.stem}"))
    return store
