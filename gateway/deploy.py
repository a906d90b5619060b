"""Deploy: metadata that the gateway checks, beside code bytes that it never opens."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import struct
import sys
from dataclasses import replace

import msgspec

from dgsf.core.attaching import known_round_trip
from dgsf.core.binding import Parameter, check_signature
from dgsf.core.genuine import said_of_dummies, spelled_out
from dgsf.core.names import check_name
from dgsf.core.options import AUTO, FunctionOptions, parse_options
from dgsf.core.perfmodel import choose_by_curve
from dgsf.core.placement import DeviceView, Request, why_not
from dgsf.core.sizes import describe_bytes
from dgsf.errors import BodyTooLarge, DoesNotFit, NoDevice, PythonMismatch, Unprocessable
from dgsf.store.devices import DeviceStore
from dgsf.store.rows import DeviceRow
from dgsf.store.views import view_of
from gateway.handling import Asked
from gateway.reply import Reply, json_reply
from gateway.views import DeployedView, Manifest

log = logging.getLogger(__name__)
MAX_METADATA_BYTES = 1024 * 1024
MAX_PARAMETERS = 1000
HOST_SECONDS = 15.0  # for the first function host to join
LOOK_SECONDS = 0.1
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_CODE_WHY = "; the platform's setting DGSF_MAX_CODE_BYTES says so"
_LENGTH = struct.Struct(">I")
_MANIFEST = msgspec.json.Decoder(Manifest)


async def deploy(asked: Asked) -> Reply:
    """A new version of a function; 201 with what is deployed now."""
    context, name = asked.context, check_name(asked.parameters["name"])
    limit = context.settings.max_code_bytes
    body = await asked.bodies.whole(asked.request, limit + MAX_METADATA_BYTES + _LENGTH.size, _CODE_WHY)
    manifest, code = split(body)
    if len(code) > limit:
        raise BodyTooLarge(
            f"the packed function of {describe_bytes(len(code))} is over the limit of {describe_bytes(limit)}"
            + _CODE_WHY,
            limit=limit,
        )
    options, reason = check(manifest, code), None
    if options.attach == AUTO:
        round_trip_us = known_round_trip(options.gpu, await context.devices.list_devices())
        known_us = context.settings.fabric_round_trip_us if round_trip_us is None else round_trip_us
        options, reason = settled(options, known_us)
    rows = await _pool_for(options, context.devices)
    options, reason = near_if_it_must(options, reason, rows)
    _check_fit(options, rows)
    metadata = {**msgspec.to_builtins(manifest), "attach": "fabric" if options.over_fabric else "near"}
    row = await context.registry.deploy(asked.tenant_id, name, bytes.fromhex(manifest.digest), metadata, code)
    context.catalogue.flush()  # who deploys here and calls here gets the new version
    return json_reply(msgspec.structs.replace(DeployedView.of(row), attach_reason=reason), 201)


async def _pool_for(options: FunctionOptions, devices: DeviceStore) -> list[DeviceRow]:
    """The pool; a platform that has just started may have devices a little earlier than function hosts."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + HOST_SECONDS
    rows = await devices.list_devices()
    while options.over_fabric and not any(row.is_host for row in rows) and loop.time() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
        rows = await devices.list_devices()
    return rows


def settled(options: FunctionOptions, round_trip_us: float) -> tuple[FunctionOptions, str]:
    """With attach="auto", the choice that the function's profile makes over such a way, and why."""
    choice = choose_by_curve(options.profile, round_trip_us)
    log.info("attach_chosen", extra={"attach": choice.attach, "round_trip_us": round_trip_us, "reason": choice.reason})
    return replace(options, chosen=choice.attach), choice.reason


def near_if_it_must(
    options: FunctionOptions, reason: str | None, rows: list[DeviceRow]
) -> tuple[FunctionOptions, str | None]:
    """A choice for the fabric was free: where no host can run the body, it runs near."""
    if options.attach != AUTO or not options.over_fabric:
        return options, reason
    try:
        _check_host(options, [view_of(row) for row in rows if row.is_host])
    except (NoDevice, DoesNotFit) as error:
        return replace(options, chosen="near"), f"{reason}, but {error.message}"
    return options, reason


def split(body: bytes) -> tuple[Manifest, bytes]:
    """Metadata and code: the metadata's length in 4 bytes, big endian, the metadata as JSON, the code."""
    if len(body) < _LENGTH.size:
        raise Unprocessable("the body is too short: expected a length of 4 bytes, JSON metadata, and code")
    (length,) = _LENGTH.unpack_from(body)
    if length > MAX_METADATA_BYTES:
        raise BodyTooLarge(
            f"the metadata has {length} bytes, over the limit of {MAX_METADATA_BYTES}", limit=MAX_METADATA_BYTES
        )
    end = _LENGTH.size + length
    if end > len(body):
        raise Unprocessable(f"the metadata should have {length} bytes; the body ends before")
    try:
        return _MANIFEST.decode(body[_LENGTH.size : end]), body[end:]
    except (ValueError, RecursionError) as error:  # msgspec's errors and UnicodeDecodeError are ValueErrors
        raise Unprocessable(f"the metadata is not as it should be: {error}") from None


def check(manifest: Manifest, code: bytes) -> FunctionOptions:
    """Everything that can be wrong with a function before a device is thought of."""
    if manifest.python != PYTHON:
        raise PythonMismatch(
            f"the function was packed by Python {manifest.python[:20]}; the workers run Python {PYTHON}",
            packed=manifest.python[:20],
            workers=PYTHON,
        )
    if not code:
        raise Unprocessable("there is no code behind the metadata")
    if hashlib.sha256(code).hexdigest() != manifest.digest.lower():
        raise Unprocessable("the digest in the metadata is not the sha256 of the code")
    if len(manifest.signature) > MAX_PARAMETERS:
        raise Unprocessable(
            f"the signature has {len(manifest.signature)} parameters, over the limit of {MAX_PARAMETERS}"
        )
    wrong = check_signature([Parameter(item.name, item.kind, item.required) for item in manifest.signature])
    if wrong:
        raise Unprocessable(f"the signature is not as it should be: {wrong}")
    return parse_options(manifest.options)


def _check_fit(options: FunctionOptions, rows: list[DeviceRow]) -> None:
    """Against every device that the pool knows, also those away for the moment."""
    if not options.over_fabric:
        check_device(options.gpu, options.memory_bytes, rows, cpu_milli=options.cpu_milli)
    else:
        check_device(options.gpu, options.gpu_memory_bytes, rows)
        _check_host(options, [view_of(row) for row in rows if row.is_host])


def check_device(
    gpu: tuple[str, ...], device_bytes: int, rows: list[DeviceRow], what: str = "function", cpu_milli: int = 0
) -> None:
    """Whether any device could ever hold it; NoDevice, DoesNotFit."""
    if all(row.is_host for row in rows):
        raise NoDevice("the pool has no device yet; try again when one has joined")
    types, pool = spelled_out(gpu), [view_of(row) for row in rows]
    reason = why_not(Request(types, device_bytes, cpu_milli=cpu_milli), pool)
    if reason is not None:
        told = said_of_dummies(reason, types, pool)
        raise DoesNotFit(f"no device of the pool can ever hold this {what}: {told}")


def _check_host(options: FunctionOptions, hosts: list[DeviceView]) -> None:
    if not hosts:
        raise NoDevice("the pool has no function host yet for attach='fabric'; try again when one has joined")
    reason = why_not(Request(options.worker_types, options.memory_bytes, cpu_milli=options.cpu_milli), hosts)
    if reason is not None:
        raise DoesNotFit(f"no function host can ever run this function: it {reason}")
