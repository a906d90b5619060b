"""What `DGSF_REMOTING` says: which ways of hiding latency are on. Pure.

"full" is everything; "-name" behind it switches one off, for measurement.  "naive" is the baseline that
others are compared with: the same encoding, but every call and every upload is awaited before the next.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from dgsf.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Modes:
    """Each on unless switched off."""

    coalesce: bool = True  # many records in one frame
    traces: bool = True  # repeated segments are sent by number
    known: bool = True  # large uploads by their content's hash
    shapes: bool = True  # results' metadata from a cache
    elements: bool = True  # what is read of a tensor is downloaded, not the tensor
    frees: bool = True  # ride along with the next calls; off: sent before the next one, which waits until they are done
    overlap: bool = (
        True  # of transfers and work; off: an upload is awaited, a download begins when all before it is done
    )
    survival: bool = True  # journal and checkpoints, to outlive the device
    naive: bool = False  # one round trip per call


FULL = Modes()
NAIVE = Modes(coalesce=False, traces=False, known=False, shapes=True, elements=False, survival=False, naive=True)
SWITCHES = tuple(item.name for item in fields(Modes) if item.name != "naive")


def parse_modes(text: str) -> Modes:
    """The modes of a setting such as "full", "naive" or "full,-traces,-known"."""
    words = [word.strip() for word in text.split(",") if word.strip()] or ["full"]
    base, switches = words[0], words[1:]
    if base not in ("full", "naive"):
        raise ConfigError(f"DGSF_REMOTING={text!r} starts with {base!r}; it must be 'full' or 'naive'")
    start = FULL if base == "full" else NAIVE
    changes = dict(_switch(word, text) for word in switches)
    return Modes(**{item.name: changes.get(item.name, getattr(start, item.name)) for item in fields(Modes)})


def _switch(word: str, text: str) -> tuple[str, bool]:
    name = word[1:]
    if word[0] not in "+-" or name not in SWITCHES:
        known = ", ".join(f"-{switch}" for switch in SWITCHES)
        raise ConfigError(f"DGSF_REMOTING={text!r} has {word!r}; known switches are {known}")
    return name, word[0] == "+"
