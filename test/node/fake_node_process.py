"""A process with the node and a fake planner; `slow` as first word makes loading take a minute."""

import sys
import threading

from fake_planner import FakePlanner

from flashdrive_ros.errors import FlashdriveError
from flashdrive_ros.ros.run import run_node


def load_slowly(parameters):
    threading.Event().wait(60)
    return FakePlanner()


if __name__ == "__main__":
    slow = sys.argv[1:2] == ["slow"]
    try:
        print(
            run_node(sys.argv[2:] if slow else sys.argv[1:], load_slowly if slow else lambda parameters: FakePlanner())
        )
    except FlashdriveError as error:
        sys.exit(f"node: {error}")
