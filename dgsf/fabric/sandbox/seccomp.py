"""The system-call filter: a deny-list, since any library may run in a worker.

Threads, subprocesses, mmap and ordinary sockets go on working.  One rule is a courtesy: a worker is
process 1 of its namespace, whose own SIGKILL the kernel would ignore; the filter ends it instead.  That is
the only rule that kills, so a death by SIGSYS means that a function killed itself.
"""

from __future__ import annotations

import ctypes
import errno
import signal
import socket

from dgsf.fabric.sandbox import bpf, libc, syscalls

SELF_KILL_SIGNAL = signal.SIGSYS
_NAMESPACE_FLAGS = (
    libc.CLONE_NEWNS | libc.CLONE_NEWCGROUP | libc.CLONE_NEWUTS | libc.CLONE_NEWIPC
    | libc.CLONE_NEWUSER | libc.CLONE_NEWPID | libc.CLONE_NEWNET
)  # fmt: skip
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_ALLOW, _EPERM = bpf.ALLOW, bpf.refuse(errno.EPERM)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def build_filter(machine: str | None = None) -> bytes:
    """The filter for this architecture; OSError for one that we have no numbers of."""
    name = machine or libc.machine()
    if name not in syscalls.ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"seccomp: no system call numbers for {name}")
    column, architecture = syscalls.ARCHITECTURES[name]
    foreign = bpf.unless_equal(architecture, [bpf.refuse(errno.ENOSYS)])
    return bpf.assemble([bpf.LOAD_ARCHITECTURE, *foreign, bpf.LOAD_NUMBER, *_rules(column), _ALLOW])


def _rules(column: int) -> bpf.Block:
    block: bpf.Block = []
    if column == 0:
        block += bpf.if_at_least(syscalls.X32_BIT, [bpf.refuse(errno.ENOSYS)])
    for table, action in ((syscalls.REFUSED, _EPERM), (syscalls.UNKNOWN, bpf.refuse(errno.ENOSYS))):
        for numbers in table.values():
            number = numbers[column]
            if number is not None:
                block += bpf.if_equal(number, [action])
    for numbers_of, rule in _BY_ARGUMENT:
        block += bpf.if_equal(numbers_of[column], rule)
    return block


def _socket_rule() -> bpf.Block:
    block: bpf.Block = [bpf.load_argument(0)]
    for family in _FAMILIES:
        block += bpf.if_equal(family, [_ALLOW])
    routes = [bpf.load_argument(2), *bpf.if_equal(0, [_ALLOW]), _EPERM]  # getaddrinfo asks for addresses
    return [*block, *bpf.if_equal(socket.AF_NETLINK, routes), bpf.refuse(errno.EAFNOSUPPORT)]


def _kill_rule(signal_at: int) -> bpf.Block:
    on_self = [bpf.load_argument(signal_at), *bpf.if_equal(signal.SIGKILL, [bpf.KILL])]
    return [bpf.load_argument(0), *bpf.if_equal(1, on_self), _ALLOW]


_BY_ARGUMENT: tuple[tuple[tuple[int, int], bpf.Block], ...] = (
    (syscalls.CLONE, [bpf.load_argument(0), *bpf.if_any_bit(_NAMESPACE_FLAGS, [_EPERM]), _ALLOW]),
    (syscalls.SOCKET, _socket_rule()),
    (
        syscalls.IOCTL,
        [bpf.load_argument(1), *bpf.if_equal(_TIOCSTI, [_EPERM]), *bpf.if_equal(_TIOCLINUX, [_EPERM]), _ALLOW],
    ),
    (syscalls.KILL, _kill_rule(1)),
    (syscalls.TKILL, _kill_rule(1)),
    (syscalls.TGKILL, _kill_rule(2)),
)


def install(program: bytes) -> None:
    """Put the filter in force for this process and all that it starts; needs no_new_privs."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = _Program(len(program) // 8, ctypes.addressof(buffer))
    libc.prctl(libc.PR_SET_SECCOMP, libc.SECCOMP_MODE_FILTER, ctypes.addressof(header))
