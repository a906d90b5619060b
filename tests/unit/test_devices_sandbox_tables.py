"""The parts of the sandbox that are only tables and bytes."""

import struct

import pytest

from dgsf.fabric.sandbox import bpf, landlock, seccomp, syscalls
from dgsf.fabric.sandbox.rootfs import _outermost

ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x50001, 0x50026, 0x80000000


def run_filter(program, number, arguments=(), architecture=0xC000003E):
    """What the kernel would do: a tiny interpreter of the few instructions that we use."""
    instructions = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    data = struct.pack("<II Q 6Q", number, architecture, 0, *arguments, *([0] * (6 - len(arguments))))
    at, value = 0, 0
    while True:
        code, true, false, constant = instructions[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("<I", data, constant)
        elif code == 0x06:
            return constant
        else:
            met = {0x15: value == constant, 0x35: value >= constant, 0x45: bool(value & constant)}[code]
            at += true if met else false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_refuses_by_number_and_by_argument(machine):
    column, architecture = syscalls.ARCHITECTURES[machine]
    program = seccomp.build_filter(machine)

    def outcome(number, *arguments):
        return run_filter(program, number, arguments, architecture)

    for numbers in syscalls.REFUSED.values():
        if numbers[column] is not None:
            assert outcome(numbers[column]) == EPERM
    assert outcome(syscalls.UNKNOWN["clone3"][column]) == ENOSYS
    assert outcome(syscalls.CLONE[column], 0x10000000) == EPERM
    assert outcome(syscalls.CLONE[column], 0x3D0F00) == ALLOW  # a thread
    assert outcome(syscalls.SOCKET[column], 1, 1, 0) == ALLOW
    assert outcome(syscalls.SOCKET[column], 16, 3, 0) == ALLOW
    assert outcome(syscalls.SOCKET[column], 16, 3, 9) == EPERM
    assert outcome(syscalls.SOCKET[column], 40, 1, 0) == 0x50000 | 97
    assert outcome(syscalls.KILL[column], 1, 9) == KILL
    assert outcome(syscalls.KILL[column], 1, 15) == outcome(syscalls.KILL[column], 2, 9) == ALLOW
    assert outcome(syscalls.TGKILL[column], 1, 1, 9) == KILL
    assert outcome(0) == ALLOW
    assert run_filter(program, 0, (), 0x40000003) == ENOSYS  # 32-bit code


def test_a_machine_without_numbers_is_an_error():
    with pytest.raises(OSError, match="riscv"):
        seccomp.build_filter("riscv64")


def test_jumps_fit_into_their_byte():
    for machine in syscalls.ARCHITECTURES:
        program = seccomp.build_filter(machine)
        assert len(program) % 8 == 0 and len(program) // 8 < 4096
    with pytest.raises(struct.error):
        bpf.assemble(bpf.if_equal(1, [bpf.ALLOW] * 300))


def test_landlock_handles_only_what_the_kernel_knows():
    assert landlock.handled_file_rights(1) == (1 << 13) - 1
    assert landlock.handled_file_rights(2) == (1 << 14) - 1
    assert landlock.handled_file_rights(7) == (1 << 16) - 1


def test_folders_inside_others_are_bound_once():
    assert _outermost(["/usr/lib", "/usr", "/usr2", "/a/b", "/a/b", "/"]) == ["/a/b", "/usr", "/usr2"]
