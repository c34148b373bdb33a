"""Judges a message's stamp by those before it on its topic: zero, repeated, late, or a backward jump of the run."""

from __future__ import annotations

from flashdrive_ros.reasons import Reason, Refusal


class StampOrder:
    """Stamps of a few topics. Memory: two integers a topic.

    A stamp a little before its topic's newest is one late message and refused. One that is `jump_ns` or more before it
    is a jump: a bag loop or a clock reset. The first topic to jump starts a new pass for the whole run; messages that
    other topics still deliver from the old pass are refused until they follow, so that one jump is one jump.
    """

    def __init__(self, jump_ns: int) -> None:
        self._jump_ns = jump_ns
        self._newest: dict[str, int] = {}
        """Newest stamp of each topic."""
        self._not_followed: set[str] = set()
        """Topics that have not been heard in the pass that the last jump started."""
        self._pass_newest_ns = 0

    def refuse(self, topic: str, stamp_ns: int) -> Refusal | None:
        """Why a message must not be used; None when it may be, and then its stamp is the topic's newest."""
        if stamp_ns <= 0:
            return Refusal(Reason.STAMP_ZERO, topic, f"stamp {stamp_ns} ns; expected the time of the measurement")
        newest = self._newest.get(topic)
        if newest is not None:
            if topic in self._not_followed:
                if stamp_ns >= newest and stamp_ns > self._pass_newest_ns + self._jump_ns // 2:
                    self._newest[topic] = stamp_ns
                    ahead_s = (stamp_ns - self._pass_newest_ns) / 1e9
                    detail = f"{ahead_s:.3f} s ahead of the topics that jumped back; dropped until this one follows"
                    return Refusal(Reason.STAMP_BACKWARD, topic, detail)
                self._not_followed.discard(topic)
            elif stamp_ns == newest:
                return Refusal(Reason.STAMP_REPEATED, topic, f"stamp {stamp_ns} ns again")
            elif newest - self._jump_ns < stamp_ns < newest:
                detail = f"{(newest - stamp_ns) / 1e9:.3f} s before the newest; this one message is dropped"
                return Refusal(Reason.STAMP_BACKWARD, topic, detail)
        self._newest[topic] = stamp_ns
        self._pass_newest_ns = max(self._pass_newest_ns, stamp_ns)
        return None

    def jump(self, topic: str, stamp_ns: int) -> Refusal | None:
        """The backward jump that this message makes for the whole run, once; call it before `refuse`."""
        newest = self._newest.get(topic)
        if newest is None or topic in self._not_followed or stamp_ns <= 0 or newest - stamp_ns < self._jump_ns:
            return None
        self._not_followed = set(self._newest) - {topic}
        self._pass_newest_ns = stamp_ns
        detail = f"back by {(newest - stamp_ns) / 1e9:.3f} s to {stamp_ns} ns: windows and history forgotten"
        return Refusal(Reason.STAMP_BACKWARD, topic, detail)
