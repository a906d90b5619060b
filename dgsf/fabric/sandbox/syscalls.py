"""System calls that no worker needs, with their numbers on the two architectures we know.

A call that an architecture does not have is None there.
"""

from __future__ import annotations

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32_BIT = 0x40000000

# Mounts and namespaces; other processes' memory; the kernel itself; keys; clocks; and interfaces with a
# long record of holes that Python programs do without.
REFUSED: dict[str, tuple[int | None, int | None]] = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "open_tree": (428, 428), "open_tree_attr": (467, 467), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "unshare": (272, 97), "setns": (308, 268),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "create_module": (174, None),
    "query_module": (178, None), "get_kernel_syms": (177, None), "reboot": (169, 142), "syslog": (103, 116),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "fanotify_init": (300, 262),
    "swapon": (167, 224), "swapoff": (168, 225), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "acct": (163, 89), "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "personality": (135, 92), "vhangup": (153, 58), "sethostname": (170, 161),
    "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    "lookup_dcookie": (212, 18), "nfsservctl": (180, 42), "uselib": (134, None), "ustat": (136, None),
    "sysfs": (139, None), "_sysctl": (156, None), "migrate_pages": (256, 238), "move_pages": (279, 239),
}  # fmt: skip

# Refused as if the kernel did not have them, because libraries then use the older way.
UNKNOWN: dict[str, tuple[int | None, int | None]] = {
    "clone3": (435, 435), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip

# Allowed or not by their arguments.
CLONE, SOCKET, IOCTL = (56, 220), (41, 198), (16, 29)
KILL, TKILL, TGKILL = (62, 129), (200, 130), (234, 131)
