"""Numbers of system calls, and which of them a command has no business with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

X86_64: Final = 0xC000003E
AARCH64: Final = 0xC00000B7
"""What the kernel calls an architecture (`AUDIT_ARCH_…`)."""
ARCHITECTURES: Final[Mapping[str, int]] = {"x86_64": X86_64, "aarch64": AARCH64}
"""By what `uname -m` says."""
X32_BIT: Final = 0x40000000
_COLUMN: Final[Mapping[int, int]] = {X86_64: 0, AARCH64: 1}

_Numbers = Mapping[str, tuple[int | None, int | None]]

FORBIDDEN: Final[_Numbers] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
"""Refused with EPERM, whatever their arguments."""
FOR_DEBUGGERS: Final[_Numbers] = {
    "kcmp": (312, 272),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
}
"""Refused too, unless debugging is allowed."""
MISSING: Final[_Numbers] = {"clone3": (435, 435), "openat2": (437, 437)}
"""Said not to exist: their arguments are behind a pointer, and callers know the older call."""
LOOKED_AT: Final[_Numbers] = {
    "chmod": (90, None),
    "clone": (56, 220),
    "creat": (85, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "ioctl": (16, 29),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "open": (2, None),
    "openat": (257, 56),
    "socket": (41, 198),
    "socketpair": (53, 199),
}
"""Refused for some arguments."""


def numbers_of(calls: _Numbers, architecture: int) -> tuple[int, ...]:
    """The numbers of those calls that the architecture has."""
    return tuple(number for pair in calls.values() if (number := pair[_COLUMN[architecture]]) is not None)


def number_of(call: str, architecture: int) -> int | None:
    """The number of a call that is looked at; None where the architecture has none."""
    return LOOKED_AT[call][_COLUMN[architecture]]
