"""Started as a program of its own, without anything of xnagent: shuts itself in and runs a command there.

`python -I -S cage.py DESCRIPTOR COMMAND…`, where the descriptor holds fields separated by NUL: version of Landlock (0:
files are not guarded), whether TCP is shut, the filter in hexadecimal, and then pairs of `r` or `w` and a path.
Descriptors 3 and 4 are told whether processes were left, and what the command came to.

Every command waits until this has started, so it takes what is in the interpreter (`posix`) and the compiled half of
`ctypes`: `os` and `ctypes` itself would take as long as the rest of the way here.
"""

import posix
import sys
import time
from _ctypes import FUNCFLAG_CDECL, FUNCFLAG_USE_ERRNO, CFuncPtr, Structure, addressof, byref, dlopen, dlsym, get_errno
from posix import _exit

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
CLOSE_RANGE, LAST_DESCRIPTOR = 436, -1
LIBRARY = "libc.so.6"
"""Is loaded already. The name also means the C library to musl."""
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
SET_BYTES, CHUNK_BYTES = 128, 1 << 20


class Call(CFuncPtr):
    """A function of the C library that returns a number."""

    _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO


class Library:
    """What is not in Python."""

    def __init__(self) -> None:
        here = dlopen(LIBRARY, 0)
        self.capset = Call(dlsym(here, "capset"))
        self.prctl = Call(dlsym(here, "prctl"))
        self.sigaddset = Call(dlsym(here, "sigaddset"))
        self.sigemptyset = Call(dlsym(here, "sigemptyset"))
        self.signal = Call(dlsym(here, "signal"))
        self.sigprocmask = Call(dlsym(here, "sigprocmask"))
        self.sigwaitinfo = Call(dlsym(here, "sigwaitinfo"))
        self.syscall = Call(dlsym(here, "syscall"))


class Memory(Structure):
    """Bytes that have an address, made by `from_buffer`."""

    _fields_ = ()


def main(arguments: list[str]) -> int:
    """The command's exit status."""
    fields = _read(int(arguments[0])).split(b"\0")
    libc = Library()
    _control(libc, option=SET_SUBREAPER, value=1)
    posix.setpgid(0, 0)
    waited_for, before = _signals(libc, CHILD, ALARM), _signals(libc)
    libc.signal(CHILD, DEFAULT)
    libc.sigprocmask(BLOCK, byref(waited_for), byref(before))
    _control(libc, option=SET_DEATH_SIGNAL, value=ALARM)
    child = posix.fork()
    if child == 0:
        libc.sigprocmask(SET_MASK, byref(before), None)
        _become(libc, fields, line=arguments[1:])
    for number in (TERMINATE, INTERRUPT, HANGUP):
        libc.signal(number, IGNORE)
    code = _wait_for(libc, child, signals=waited_for)
    _see_off()
    posix.write(STATUS, b'{ "exit-code": %d }\n' % code)
    return code


def _read(descriptor: int) -> bytes:
    content = b""
    while chunk := posix.read(descriptor, CHUNK_BYTES):
        content += chunk
    posix.close(descriptor)
    return content


def _signals(libc: Library, *numbers: int) -> Memory:
    """A `sigset_t`."""
    made = Memory.from_buffer(bytearray(SET_BYTES))
    libc.sigemptyset(byref(made))
    for number in numbers:
        libc.sigaddset(byref(made), number)
    return made


def _become(libc: Library, fields: list[bytes], *, line: list[str]) -> None:
    try:
        posix.setsid()
        _control(libc, option=SET_DEATH_SIGNAL, value=KILL)
        _close_all(libc)
        for number in (BROKEN_PIPE, TOO_LARGE):
            libc.signal(number, DEFAULT)
        _shut_in(libc, fields)
        _run(line)
    except OSError as error:
        posix.write(2, f"cage: {error}\n".encode())
        _exit(NOT_FOUND if isinstance(error, FileNotFoundError) else SETUP_FAILED)


def _close_all(libc: Library) -> None:
    if libc.syscall(CLOSE_RANGE, 3, LAST_DESCRIPTOR, 0) < 0:
        posix.closerange(3, posix.sysconf("SC_OPEN_MAX"))


def _run(line: list[str]) -> None:
    program = line[0]
    if "/" in program:
        posix.execv(program, line)
    for folder in posix.environ.get(b"PATH", b"").split(b":"):
        try:
            posix.execv(folder + b"/" + program.encode(), line)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
    raise FileNotFoundError(program)


def _shut_in(libc: Library, fields: list[bytes]) -> None:
    version, is_tcp_shut, program = int(fields[0]), fields[1] == b"1", bytes.fromhex(fields[2].decode())
    _control(libc, option=SET_NO_NEW_PRIVILEGES, value=1)
    if version:
        _guard_files(libc, version, is_tcp_shut=is_tcp_shut, rules=fields[3:])
        _drop_capabilities(libc)
    _filter_calls(libc, program)


def _filter_calls(libc: Library, program: bytes) -> None:
    """Tell the kernel as a `struct sock_fprog`: how many instructions, and where they are."""
    memory = Memory.from_buffer(bytearray(program))
    told = (len(program) // 8).to_bytes(8, "little") + addressof(memory).to_bytes(8, "little")
    _checked(libc.prctl(SET_SECCOMP, FILTER, told), "seccomp")


def _guard_files(libc: Library, version: int, *, is_tcp_shut: bool, rules: list[bytes]) -> None:
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
    posix.close(ruleset)


def _allow(libc: Library, ruleset: int, *, path: bytes, rights: int) -> None:
    try:
        place = posix.open(path, posix.O_PATH | posix.O_CLOEXEC)
    except OSError:
        return
    if posix.fstat(place).st_mode & KIND != FOLDER:
        rights &= ~ONLY_FOR_FOLDERS
    rule = rights.to_bytes(8, "little") + place.to_bytes(4, "little")
    name = path.decode("utf-8", "backslashreplace")
    _checked(libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, rule, 0), f"landlock: {name}")
    posix.close(place)


def _drop_capabilities(libc: Library) -> None:
    for capability in range(64):
        if libc.prctl(DROP_BOUNDING, capability, 0, 0, 0):
            break
    libc.prctl(CHANGE_AMBIENT, CLEAR_ALL, 0, 0, 0)
    head = CAPABILITY_VERSION.to_bytes(4, "little") + bytes(4)
    _checked(libc.capset(head, bytes(24)), "capset")


def _control(libc: Library, *, option: int, value: int) -> None:
    _checked(libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


def _checked(result: int, what: str) -> int:
    if result < 0:
        raise OSError(get_errno(), f"{what}: {posix.strerror(get_errno())}")
    return result


def _wait_for(libc: Library, child: int, *, signals: Memory) -> int:
    """The command's exit status. Ends everything if whoever wanted the command is gone."""
    while True:
        if libc.sigwaitinfo(byref(signals), None) == ALARM:
            _are_gone(KILLING_SECONDS, kill=True)
            _exit(128 + KILL)
        code = _reaped(child)
        if code is not None:
            return code


def _reaped(child: int) -> int | None:
    """Takes leave of whoever has ended; the command's exit status, if it has."""
    number = -1
    while number:
        number, status = posix.waitpid(-1, posix.WNOHANG)
        if number == child:
            code = posix.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code
    return None


def _see_off() -> None:
    """Whoever is left gets a moment to end, and is made to then: all of them are children of this process."""
    if _are_gone(LINGER_SECONDS, kill=False):
        return
    posix.write(LEFT, b"left\n")
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
        posix.kill(number, KILL)
    except OSError:
        return


def _reap() -> bool:
    """Whether there is no child any more."""
    try:
        while posix.waitpid(-1, posix.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _descendants() -> list[int]:
    parents = {int(name): _parent_of(name) for name in _numbers()}
    found: list[int] = []
    new = {posix.getpid()}
    while new:
        new = {number for number, parent in parents.items() if parent in new}
        found += new
    return found


def _numbers() -> list[str]:
    with posix.scandir("/proc") as entries:
        return [entry.name for entry in entries if entry.name.isdigit()]


def _parent_of(name: str) -> int:
    try:
        stat = _read(posix.open(f"/proc/{name}/stat", posix.O_RDONLY | posix.O_CLOEXEC))
        return int(stat.rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return -1


if __name__ == "__main__":
    _exit(main(sys.argv[1:]))
