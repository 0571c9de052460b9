"""The filter for system calls, assembled as the kernel takes it: an array of `struct sock_filter`."""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from functools import cache
from typing import Final

from xnagent.core.values import dataclass
from xnagent.workspaces.box.syscalls import (
    FOR_DEBUGGERS,
    FORBIDDEN,
    MISSING,
    X32_BIT,
    X86_64,
    number_of,
    numbers_of,
)

_LOAD: Final = 0x20
_EQUAL: Final = 0x15
_AT_LEAST: Final = 0x35
_ANY_BIT: Final = 0x45
_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_REFUSE: Final = 0x00050000

_NUMBER_AT: Final = 0
_ARCHITECTURE_AT: Final = 4
_ARGUMENTS_AT: Final = 16
"""Places in `struct seccomp_data`; of a 64-bit argument the lower half comes first on both architectures."""

NAMESPACE_FLAGS: Final = 0x7E020080
"""CLONE_NEW… of every kind."""
SET_ID_BITS: Final = 0o6000
MAKES_A_FILE: Final = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE: without them the mode is not looked at, and may be anything."""
TERMINAL_TRICKS: Final = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: typing into somebody's terminal."""
AF_UNIX: Final = 1
INTERNET_FAMILIES: Final = (2, 10, 16)
"""INET, INET6, NETLINK. Not VSOCK and others: a network namespace does not hold them."""
MODE_ARGUMENT: Final[Mapping[str, int]] = {
    "chmod": 1,
    "fchmod": 1,
    "fchmodat": 2,
    "fchmodat2": 2,
    "creat": 1,
    "mknod": 1,
    "mknodat": 2,
}

_Step = tuple[int, int, int, int]
"""Operation, steps to skip if true, steps to skip if false, operand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Openings:
    """What the filter leaves open."""

    internet: bool = True
    """IP sockets; who can be reached is the network namespace's business, where there is one."""
    unix_sockets: bool = False
    debug: bool = False
    is_all_but_sockets: bool = False
    """Only sockets are looked at."""


@cache
def assemble(architecture: int, openings: Openings) -> bytes:
    """The program for one architecture, in the byte order of both."""
    steps = [*_known_callers(architecture)]
    if not openings.is_all_but_sockets:
        steps += _refused_calls(architecture, openings)
    for name, body in _bodies(openings).items():
        looked_at = number_of(name, architecture)
        if looked_at is not None:
            steps += _if_number(looked_at, body)
    steps.append(_return(_ALLOW))
    return b"".join(struct.pack("<HBBI", *step) for step in steps)


def _refused_calls(architecture: int, openings: Openings) -> list[_Step]:
    forbidden = numbers_of(FORBIDDEN, architecture)
    if not openings.debug:
        forbidden += numbers_of(FOR_DEBUGGERS, architecture)
    missing = [_if_number(number, [_refuse(errno.ENOSYS)]) for number in numbers_of(MISSING, architecture)]
    refused = [_if_number(number, [_refuse(errno.EPERM)]) for number in forbidden]
    return [step for steps in (*missing, *refused) for step in steps]


def _bodies(openings: Openings) -> dict[str, list[_Step]]:
    families = (INTERNET_FAMILIES if openings.internet else ()) + ((AF_UNIX,) if openings.unix_sockets else ())
    sockets = {"socket": _only(families), "socketpair": _only((AF_UNIX,))}
    if openings.is_all_but_sockets:
        return sockets
    modes = {name: _refused_bits(place, SET_ID_BITS) for name, place in MODE_ARGUMENT.items()}
    return {
        **sockets,
        **modes,
        "open": _refused_mode(flags=1, mode=2),
        "openat": _refused_mode(flags=2, mode=3),
        "clone": _refused_bits(0, NAMESPACE_FLAGS),
        "ioctl": [_argument(1), *(step for trick in TERMINAL_TRICKS for step in _refused_value(trick)), _allowed()],
    }


def _known_callers(architecture: int) -> list[_Step]:
    steps = [(_LOAD, 0, 0, _ARCHITECTURE_AT), (_EQUAL, 1, 0, architecture), _return(_KILL), (_LOAD, 0, 0, _NUMBER_AT)]
    if architecture == X86_64:
        steps += [(_AT_LEAST, 0, 1, X32_BIT), _refuse(errno.ENOSYS)]
    return steps


def _if_number(number: int, body: list[_Step]) -> list[_Step]:
    """The body ends with a return, so the number is still loaded for what comes after."""
    return [(_EQUAL, 0, len(body), number), *body]


def _only(families: tuple[int, ...]) -> list[_Step]:
    checks = [step for family in families for step in ((_EQUAL, 0, 1, family), _allowed())]
    return [_argument(0), *checks, _refuse(errno.EPERM)]


def _refused_value(value: int) -> list[_Step]:
    return [(_EQUAL, 0, 1, value), _refuse(errno.EPERM)]


def _refused_bits(argument: int, bits: int) -> list[_Step]:
    return [_argument(argument), (_ANY_BIT, 0, 1, bits), _refuse(errno.EPERM), _allowed()]


def _refused_mode(*, flags: int, mode: int) -> list[_Step]:
    return [_argument(flags), (_ANY_BIT, 1, 0, MAKES_A_FILE), _allowed(), *_refused_bits(mode, SET_ID_BITS)]


def _argument(place: int) -> _Step:
    return (_LOAD, 0, 0, _ARGUMENTS_AT + 8 * place)


def _allowed() -> _Step:
    return _return(_ALLOW)


def _refuse(code: int) -> _Step:
    return _return(_REFUSE | code)


def _return(value: int) -> _Step:
    return (_RETURN, 0, 0, value)
