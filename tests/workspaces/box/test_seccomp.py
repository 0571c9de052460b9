"""The filter, run by an interpreter of its own: which calls pass on which machine."""

import errno
import struct

import pytest

from xnagent.workspaces.box.seccomp import Openings, assemble
from xnagent.workspaces.box.syscalls import AARCH64, FORBIDDEN, X86_64, number_of, numbers_of

ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000


def answer(program, data):
    """What the kernel would say: a tiny machine for the five operations that are used."""
    steps = list(struct.iter_unpack("<HBBI", program))
    at = loaded = 0
    while True:
        operation, if_true, if_false, operand = steps[at]
        if operation == 0x06:
            return operand
        if operation == 0x20:
            loaded = struct.unpack_from("<I", data, operand)[0]
            at += 1
            continue
        is_true = {0x15: loaded == operand, 0x35: loaded >= operand, 0x45: bool(loaded & operand)}[operation]
        at += 1 + (if_true if is_true else if_false)


def called(architecture, number, *arguments):
    return struct.pack("<IIQ6Q", number, architecture, 0, *(*arguments, *[0] * (6 - len(arguments))))


def ask(architecture, name, *arguments, **openings):
    program = assemble(architecture, Openings(**openings))
    return answer(program, called(architecture, number_of(name, architecture), *arguments))


@pytest.mark.parametrize("architecture", [X86_64, AARCH64])
def test_every_forbidden_call_is_refused_and_every_other_passes(architecture):
    program = assemble(architecture, Openings())
    assert len(program) // 8 < 4096
    forbidden = set(numbers_of(FORBIDDEN, architecture))
    for number in range(600):
        said = answer(program, called(architecture, number, 1 << 40))
        assert (said == REFUSE | errno.EPERM) >= (number in forbidden)
        assert said in {ALLOW, REFUSE | errno.EPERM, REFUSE | errno.ENOSYS}


def test_the_two_architectures_do_not_understand_each_other():
    assert answer(assemble(X86_64, Openings()), called(AARCH64, 0)) == KILL
    assert answer(assemble(AARCH64, Openings()), called(X86_64, 0)) == KILL
    assert answer(assemble(X86_64, Openings()), called(X86_64, 0x40000000 | 1)) == REFUSE | errno.ENOSYS


@pytest.mark.parametrize("architecture", [X86_64, AARCH64])
@pytest.mark.parametrize(
    ("name", "arguments", "passes"),
    [
        ("clone", (17,), True),
        ("clone", (0x10000000,), False),
        ("clone", (0x00020000 | 17,), False),
        ("ioctl", (0, 0x5401), True),
        ("ioctl", (0, 0x5412), False),
        ("ioctl", (0, 0x541C), False),
        ("ioctl", (0, (1 << 32) | 0x5412), False),
        ("fchmod", (3, 0o755), True),
        ("fchmod", (3, 0o4755), False),
        ("fchmodat", (3, 0, 0o2755), False),
        ("fchmodat2", (3, 0, 0o4755), False),
        ("openat", (3, 0, 0, 0o7777), True),
        ("openat", (3, 0, 0o101, 0o644), True),
        ("openat", (3, 0, 0o101, 0o4755), False),
        ("openat", (3, 0, 0o20200001, 0o4755), False),
        ("openat", (3, 0, 0o200000, 0o6755), True),
        ("mknodat", (3, 0, 0o104755), False),
        ("socket", (2,), True),
        ("socket", (10,), True),
        ("socket", (16,), True),
        ("socket", (1,), False),
        ("socket", (40,), False),
        ("socket", (17,), False),
        ("socketpair", (1,), True),
        ("socketpair", (2,), False),
    ],
)
def test_a_call_is_judged_by_its_arguments(architecture, name, arguments, passes):
    assert (ask(architecture, name, *arguments) == ALLOW) == passes


@pytest.mark.parametrize(
    ("openings", "family", "passes"),
    [({"internet": False}, 2, False), ({"unix_sockets": True}, 1, True), ({"is_all_but_sockets": True}, 1, False)],
)
def test_what_is_opened_or_shut_is(openings, family, passes):
    assert (ask(X86_64, "socket", family, **openings) == ALLOW) == passes


def test_with_sockets_alone_nothing_else_is_looked_at():
    assert ask(X86_64, "chmod", 0, 0o4755, is_all_but_sockets=True) == ALLOW
    assert ask(X86_64, "clone", 0x10000000, is_all_but_sockets=True) == ALLOW


def test_debuggers_can_be_allowed():
    program = assemble(X86_64, Openings(debug=True))
    assert answer(program, called(X86_64, 101)) == ALLOW
    assert answer(assemble(X86_64, Openings()), called(X86_64, 101)) == REFUSE | errno.EPERM
