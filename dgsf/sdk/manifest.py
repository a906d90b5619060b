"""What a deploy says about a function beside its bytes: signature, options, Python version.

The gateway reads this and never the bytes.  The body of a deploy is the length of the JSON (4 bytes, big
endian), the JSON, then the code bytes.
"""

from __future__ import annotations

import inspect
import struct
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from dgsf.core.options import FunctionOptions
from dgsf.errors import UsageError

_LENGTH = struct.Struct(">I")


class Parameter(msgspec.Struct, frozen=True):
    """One parameter; `kind` is the name that `inspect` gives it."""

    name: str
    kind: str
    required: bool
    annotation: str | None = None


class Manifest(msgspec.Struct, frozen=True):
    """The metadata of a deploy."""

    signature: list[Parameter]
    options: dict[str, Any]
    python: str
    doc: str | None
    is_async: bool
    is_generator: bool
    digest: str


def manifest_of(raw: Callable[..., Any], options: FunctionOptions, digest: str) -> Manifest:
    """The metadata of this function."""
    return Manifest(
        signature=_signature(raw),
        options=options.given(),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        doc=_first_line(raw),
        is_async=inspect.iscoroutinefunction(raw) or inspect.isasyncgenfunction(raw),
        is_generator=inspect.isgeneratorfunction(raw) or inspect.isasyncgenfunction(raw),
        digest=digest,
    )


def encode_deploy(manifest: Manifest, code: bytes) -> bytes:
    """The body of a deploy."""
    head = msgspec.json.encode(manifest)
    return b"".join((_LENGTH.pack(len(head)), head, code))


def decode_deploy(body: bytes) -> tuple[Manifest, bytes]:
    """The parts of a deploy's body; ValueError (msgspec's DecodeError is one) if it is none."""
    if len(body) < _LENGTH.size:
        raise ValueError("the body is too short for a deploy")
    (length,) = _LENGTH.unpack_from(body)
    if _LENGTH.size + length > len(body):
        raise ValueError("the metadata is longer than the body")
    end = _LENGTH.size + length
    return msgspec.json.decode(body[_LENGTH.size : end], type=Manifest), body[end:]


def _signature(raw: Callable[..., Any]) -> list[Parameter]:
    try:
        signature = inspect.signature(raw)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{raw!r} tells no signature; wrap it in a plain function") from error
    return [_parameter(item) for item in signature.parameters.values()]


def _parameter(item: inspect.Parameter) -> Parameter:
    variadic = item.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = item.default is inspect.Parameter.empty and not variadic
    return Parameter(item.name, item.kind.name, required, _annotation(item.annotation))


def _annotation(annotation: Any) -> str | None:
    if annotation is inspect.Parameter.empty:
        return None
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _first_line(raw: Callable[..., Any]) -> str | None:
    text = inspect.getdoc(raw) if getattr(raw, "__doc__", None) else None
    return text.strip().splitlines()[0] if text and text.strip() else None
