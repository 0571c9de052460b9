"""Started as a program of its own, without anything of xnagent: shuts itself in and runs a command there.

`python -I -S cage.py DESCRIPTOR COMMAND…`, where the descriptor holds fields separated by NUL: version of Landlock (0:
files are not guarded), whether TCP is shut, the filter in hexadecimal, and then pairs of `r` or `w` and a path.
Descriptors 3 and 4 are told whether processes were left, and what the command came to.
"""

import ctypes
import os
import sys
import time

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
SET_DEATH_SIGNAL, SET_NO_NEW_PRIVILEGES, SET_SUBREAPER = 1, 38, 36
DROP_BOUNDING, CHANGE_AMBIENT, CLEAR_ALL = 24, 47, 4
SET_SECCOMP, FILTER = 22, 2
READ_FILE, READ_FOLDER, EXECUTE = 1 << 2, 1 << 3, 1 << 0
DEVICES = 1 << 6 | 1 << 11
REFER, TRUNCATE, DEVICE_IOCTL = 1 << 13, 1 << 14, 1 << 15
ONLY_FOR_FOLDERS = ~(READ_FILE | EXECUTE | 1 << 1 | TRUNCATE | DEVICE_IOCTL)
FIRST_WITH = {"refer": 2, "truncate": 3, "tcp": 4, "device ioctl": 5, "scopes": 6}
CAPABILITY_VERSION = 0x20080522
LINGER_SECONDS, KILLING_SECONDS, PAUSE_SECONDS = 0.2, 5.0, 0.02
SETUP_FAILED, NOT_FOUND = 125, 127
LEFT, STATUS = 3, 4
KIND, FOLDER = 0o170000, 0o040000
HANGUP, INTERRUPT, KILL, BROKEN_PIPE, ALARM, TERMINATE, CHILD, TOO_LARGE = 1, 2, 9, 13, 14, 15, 17, 25
"""Signals, the same on both architectures. The module that names them takes as long to load as all the rest."""
DEFAULT, IGNORE = 0, 1
BLOCK, SET_MASK = 0, 2
SET_BYTES = 128


class Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def main(arguments: list[str]) -> int:
    """The command's exit status."""
    with os.fdopen(int(arguments[0]), "rb") as file:
        fields = file.read().split(b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    _control(libc, option=SET_SUBREAPER, value=1)
    os.setpgid(0, 0)
    waited_for, before = _signals(libc, CHILD, ALARM), _signals(libc)
    libc.signal(CHILD, ctypes.c_void_p(DEFAULT))
    libc.sigprocmask(BLOCK, waited_for, before)
    _control(libc, option=SET_DEATH_SIGNAL, value=ALARM)
    child = os.fork()
    if child == 0:
        libc.sigprocmask(SET_MASK, before, None)
        _become(libc, fields, line=arguments[1:])
    for number in (TERMINATE, INTERRUPT, HANGUP):
        libc.signal(number, ctypes.c_void_p(IGNORE))
    code = _wait_for(libc, child, signals=waited_for)
    _see_off()
    os.write(STATUS, b'{ "exit-code": %d }\n' % code)
    return code


def _signals(libc: ctypes.CDLL, *numbers: int) -> ctypes.Array[ctypes.c_char]:
    """A `sigset_t`."""
    made = ctypes.create_string_buffer(SET_BYTES)
    libc.sigemptyset(made)
    for number in numbers:
        libc.sigaddset(made, number)
    return made


def _become(libc: ctypes.CDLL, fields: list[bytes], *, line: list[str]) -> None:
    try:
        os.setsid()
        _control(libc, option=SET_DEATH_SIGNAL, value=KILL)
        os.closerange(3, 256)
        for number in (BROKEN_PIPE, TOO_LARGE):
            libc.signal(number, ctypes.c_void_p(DEFAULT))
        _shut_in(libc, fields)
        os.execvp(line[0], line)
    except OSError as error:
        os.write(2, f"cage: {error}\n".encode())
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else SETUP_FAILED)


def _shut_in(libc: ctypes.CDLL, fields: list[bytes]) -> None:
    version, is_tcp_shut, program = int(fields[0]), fields[1] == b"1", bytes.fromhex(fields[2].decode())
    _control(libc, option=SET_NO_NEW_PRIVILEGES, value=1)
    if version:
        _guard_files(libc, version, is_tcp_shut=is_tcp_shut, rules=fields[3:])
        _drop_capabilities(libc)
    _checked(libc.prctl(SET_SECCOMP, FILTER, ctypes.byref(Program(len(program) // 8, program))), "seccomp")


def _guard_files(libc: ctypes.CDLL, version: int, *, is_tcp_shut: bool, rules: list[bytes]) -> None:
    every = (1 << 13) - 1
    for right, name in ((REFER, "refer"), (TRUNCATE, "truncate"), (DEVICE_IOCTL, "device ioctl")):
        every |= right if version >= FIRST_WITH[name] else 0
    words = [every]
    words += [3 if is_tcp_shut else 0] if version >= FIRST_WITH["tcp"] else []
    words += [3] if version >= FIRST_WITH["scopes"] else []
    content = b"".join(word.to_bytes(8, "little") for word in words)
    ruleset = _checked(libc.syscall(CREATE_RULESET, content, len(content), 0), "landlock")
    for kind, path in zip(rules[::2], rules[1::2], strict=False):
        rights = READ_FILE | READ_FOLDER | EXECUTE if kind == b"r" else every & ~DEVICES
        _allow(libc, ruleset, path=path, rights=READ_FOLDER if kind == b"l" else rights)
    _checked(libc.syscall(RESTRICT_SELF, ruleset, 0), "landlock")
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, *, path: bytes, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if os.fstat(place).st_mode & KIND != FOLDER:
        rights &= ~ONLY_FOR_FOLDERS
    rule = rights.to_bytes(8, "little") + place.to_bytes(4, "little")
    _checked(libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, rule, 0), f"landlock: {os.fsdecode(path)}")
    os.close(place)


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    for capability in range(64):
        if libc.prctl(DROP_BOUNDING, capability, 0, 0, 0):
            break
    libc.prctl(CHANGE_AMBIENT, CLEAR_ALL, 0, 0, 0)
    head = CAPABILITY_VERSION.to_bytes(4, "little") + bytes(4)
    _checked(libc.capset(head, bytes(24)), "capset")


def _control(libc: ctypes.CDLL, *, option: int, value: int) -> None:
    _checked(libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _wait_for(libc: ctypes.CDLL, child: int, *, signals: ctypes.Array[ctypes.c_char]) -> int:
    """The command's exit status. Ends everything if whoever wanted the command is gone."""
    while True:
        if libc.sigwaitinfo(signals, None) == ALARM:
            _are_gone(KILLING_SECONDS, kill=True)
            os._exit(128 + KILL)
        code = _reaped(child)
        if code is not None:
            return code


def _reaped(child: int) -> int | None:
    """Takes leave of whoever has ended; the command's exit status, if it has."""
    number = -1
    while number:
        number, status = os.waitpid(-1, os.WNOHANG)
        if number == child:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
    return None


def _see_off() -> None:
    """Whoever is left gets a moment to end, and is made to then: all of them are children of this process."""
    if _are_gone(LINGER_SECONDS, kill=False):
        return
    os.write(LEFT, b"left\n")
    _are_gone(KILLING_SECONDS, kill=True)


def _are_gone(limit_seconds: float, *, kill: bool) -> bool:
    deadline = time.monotonic() + limit_seconds
    while time.monotonic() < deadline:
        for number in _descendants() if kill else ():
            _kill(number)
        if _reap():
            return True
        time.sleep(PAUSE_SECONDS)
    return False


def _kill(number: int) -> None:
    try:
        os.kill(number, KILL)
    except OSError:
        return


def _reap() -> bool:
    """Whether there is no child any more."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _descendants() -> list[int]:
    parents = {int(name): _parent_of(name) for name in _numbers()}
    found: list[int] = []
    new = {os.getpid()}
    while new:
        new = {number for number, parent in parents.items() if parent in new}
        found += new
    return found


def _numbers() -> list[str]:
    with os.scandir("/proc") as entries:
        return [entry.name for entry in entries if entry.name.isdigit()]


def _parent_of(name: str) -> int:
    try:
        with os.fdopen(os.open(f"/proc/{name}/stat", os.O_RDONLY | os.O_CLOEXEC), "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return -1


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
