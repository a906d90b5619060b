"""How much longer calls take whose device is remote, by how fast that device is.

One recording of device commands stands for all calls.  It is taken as a run on a T4, as the run times of calls are; on
a faster device all of it takes so many times less, and only the link stays as it is.  So the faster the device, the
more of a run is the link's.  Where bodies may also run beside the device, that is chosen for each speed.
"""

from __future__ import annotations

from dataclasses import replace

from dgsf.core.perfmodel import AttachChoice, Link, Recording, choose_attach
from dgsf.errors import UsageError


class Remoted:
    """The slow-down over one link; each speed is walked through once."""

    def __init__(self, recording: Recording, link: Link, attach: str) -> None:
        """`attach`: near, fabric, or auto, which is the one or the other."""
        self.link = link
        self._recording = recording
        self._attach = attach
        self._choices: dict[float, AttachChoice] = {}

    def slowdown(self, speed: float) -> float:
        """Remoted over native on a device so many times as fast as a T4; 1 where the body runs beside it."""
        return self.choice(speed).slowdown if self.attach(speed) == "fabric" else 1.0

    def attach(self, speed: float) -> str:
        return self.choice(speed).attach if self._attach == "auto" else self._attach

    def choice(self, speed: float) -> AttachChoice:
        """What would be chosen for a device of this speed, and why."""
        found = self._choices.get(speed)
        if found is None:
            found = self._choices[speed] = choose_attach(_in_less_time(self._recording, speed), self.link)
        return found


def _in_less_time(recording: Recording, times: float) -> Recording:
    """As if device and guest were so many times as fast: a type's speed is that of whole runs."""
    try:
        commands = tuple(
            replace(item, kernel_us=item.kernel_us / times, guest_us=item.guest_us / times)
            for item in recording.commands
        )
    except (ValueError, OverflowError, ZeroDivisionError):
        raise UsageError(f"--recording: on a device of speed {times:g} its commands would take for ever") from None
    return replace(recording, commands=commands)
