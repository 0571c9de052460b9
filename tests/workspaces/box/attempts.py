"""Run inside a box, with the standard library alone: tries to get out, and prints what came of each attempt.

`python3 attempts.py FACTS`, where FACTS is a JSON file that names things outside. Each line is a JSON pair: the
attempt's name, and "" if it was stopped or else what it reached.
"""

import ctypes
import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
NUMBERS = {
    "ptrace": (101, 117),
    "mount": (165, 40),
    "unshare": (272, 97),
    "setns": (308, 268),
    "clone": (56, 220),
    "clone3": (435, 435),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "process_vm_readv": (310, 270),
    "pidfd_getfd": (438, 438),
    "open_by_handle_at": (304, 265),
    "pivot_root": (155, 41),
    "init_module": (175, 105),
    "openat2": (437, 437),
}


def syscall(name, *arguments):
    """The number of the error; 0 if the call went through."""
    result = LIBC.syscall(NUMBERS[name][0 if X86 else 1], *arguments)
    return ctypes.get_errno() if result < 0 else 0


def write(path, text="escaped"):
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        return ""
    return f"wrote {path}"


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read(100_000).decode("utf-8", "replace")
    except OSError:
        return ""


def reached(path, secret):
    return f"read {path}" if secret in read(path) else ""


class Attempts:
    def __init__(self, facts):
        self.facts = facts
        self.canary = facts["canary"]
        self.secret = facts["secret"]

    def write_through_dots(self):
        return write(os.path.relpath(self.canary + "/file"))

    def write_through_a_link(self):
        os.symlink(self.canary + "/file", "to-file")
        return write("to-file")

    def write_through_a_linked_folder(self):
        os.symlink(self.canary, "to-folder")
        return write("to-folder/new")

    def read_outside(self):
        return reached(self.canary + "/file", self.secret)

    def hard_link(self):
        for target in (self.canary + "/file", "/etc/passwd"):
            try:
                os.link(target, "linked")
            except OSError:
                continue
            return f"linked {target}"
        return ""

    def rename_outside(self):
        try:
            os.rename(self.canary + "/file", "mine")
        except OSError:
            return ""
        return "renamed"

    def truncate_outside(self):
        try:
            os.truncate(self.canary + "/file", 0)
        except OSError:
            return ""
        return "truncated"

    def remove_outside(self):
        shutil.rmtree(self.canary, ignore_errors=True)
        return "" if os.path.exists(self.canary) is False or os.path.exists(self.canary + "/file") else "removed"

    def change_mode_outside(self):
        try:
            os.chmod(self.canary + "/file", 0o777)
        except OSError:
            return ""
        return "changed a mode"

    def read_the_home(self):
        return reached(self.facts["home"] + "/.ssh/id_x", self.secret)

    def read_the_checkout(self):
        return reached(self.facts["checkout"] + "/private.txt", self.secret)

    def read_the_spool(self):
        return reached(self.facts["scratch"] + "/c0.out", self.secret)

    def write_into_scratch(self):
        write(self.facts["scratch"] + "/escaped", "0")
        return ""

    def root_of_process_one(self):
        return reached("/proc/1/root" + self.canary + "/file", self.secret)

    def environment_of_others(self):
        return self._in_processes("environ")

    def memory_of_others(self):
        names = [n for n in os.listdir("/proc") if n.isdigit() and int(n) != os.getpid()]
        opened = [n for n in names if self._can_open(f"/proc/{n}/mem") and not self._is_family(int(n))]
        return f"opened the memory of {opened}" if opened else ""

    def command_lines_of_others(self):
        return self._in_processes("cmdline")

    def _in_processes(self, what):
        for name in os.listdir("/proc"):
            if name.isdigit() and self.secret in read(f"/proc/{name}/{what}"):
                return f"/proc/{name}/{what}"
        return ""

    def _can_open(self, path):
        try:
            os.close(os.open(path, os.O_RDONLY))
        except OSError:
            return False
        return True

    def _is_family(self, number):
        while number > 1 and number != os.getppid():
            try:
                number = int(read(f"/proc/{number}/stat").rpartition(")")[2].split()[1])
            except (IndexError, ValueError):
                return False
        return number == os.getppid() or read("/proc/1/comm").strip() == "bwrap"

    def kernel_settings(self):
        for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/sys/kernel/hostname"):
            try:
                os.close(os.open(path, os.O_WRONLY))
            except OSError:
                continue
            return f"opened {path} for writing"
        return ""

    def sysfs_and_groups(self):
        paths = ["/sys/kernel/uevent_helper", "/sys/fs/cgroup/pids/cgroup.procs", "/sys/fs/cgroup/cgroup.procs"]
        for path in paths:
            try:
                os.close(os.open(path, os.O_WRONLY))
            except OSError:
                continue
            return f"opened {path} for writing"
        return ""

    def git_hooks(self):
        return write(".git/hooks/pre-commit")

    def git_config(self):
        return write(".git/config") or write(".git/config.worktree") or write(".git/info/attributes")

    def move_git_aside(self):
        try:
            os.rename(".git", "aside")
        except OSError:
            return ""
        return "moved .git"

    def lent_objects(self):
        return write(self.facts["objects"] + "/ab") or write(self.facts["objects"] + "/info/alternates")

    def trace(self):
        return "" if syscall("ptrace", 16, self.facts["victim"], 0, 0) else "attached"

    def kill_outside(self):
        try:
            os.kill(self.facts["victim"], signal.SIGTERM)
        except OSError:
            return ""
        return f"sent a signal to {self.facts['victim']}"

    def tcp_to_the_host(self):
        try:
            socket.create_connection(("127.0.0.1", self.facts["tcp"]), timeout=1).close()
        except OSError:
            return ""
        return "connected"

    def udp_to_the_host(self):
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
                connection.sendto(b"escaped", ("127.0.0.1", self.facts["udp"]))
        except OSError:
            return ""
        return ""

    def abstract_socket(self):
        return self._unix("\0" + self.facts["abstract"])

    def pathname_socket_in_a_visible_folder(self):
        return self._unix(self.facts["socket"])

    def system_sockets(self):
        for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket"):
            if self._unix(path):
                return path
        return ""

    def _unix(self, address):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(address)
        except OSError:
            return ""
        return f"connected to {address!r}"

    def vsock(self):
        try:
            socket.socket(getattr(socket, "AF_VSOCK", 40), socket.SOCK_STREAM).close()
        except OSError:
            return ""
        return "made a vsock socket"

    def packet_socket(self):
        for family, kind in ((17, socket.SOCK_RAW), (38, socket.SOCK_SEQPACKET)):
            try:
                socket.socket(family, kind).close()
            except OSError:
                continue
            return f"made a socket of family {family}"
        return ""

    def new_namespaces(self):
        flags = 0x10000000 | 0x00020000
        for name, result in {
            "unshare": syscall("unshare", flags),
            "clone": syscall("clone", flags | 17, 0, 0, 0, 0),
            "clone3": 0 if syscall("clone3", 0, 0) != errno.ENOSYS else 1,
        }.items():
            if not result:
                return name
        return ""

    def mounts(self):
        flags = 32 | 4096
        return "" if syscall("mount", b"none", b"/", None, flags, None) else "remounted /"

    def make_a_device(self):
        try:
            os.mknod("disk", stat.S_IFBLK | 0o666, os.makedev(254, 0))
        except OSError:
            return ""
        return "made a device"

    def change_root(self):
        try:
            os.chroot(".")
        except OSError:
            return ""
        return "changed the root"

    def dangerous_calls(self):
        names = ("setns", "keyctl", "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "process_vm_readv")
        names += ("pidfd_getfd", "open_by_handle_at", "pivot_root", "init_module")
        let_through = [name for name in names if syscall(name, 0, 0, 0, 0, 0, 0) != errno.EPERM]
        return ", ".join(let_through)

    def calls_behind_pointers(self):
        return "" if syscall("openat2", -100, b".", b"\0" * 24, 24) == errno.ENOSYS else "openat2"

    def other_call_tables(self):
        if not X86:
            return ""
        LIBC.syscall(0x40000000 | 39)
        return "" if ctypes.get_errno() == errno.ENOSYS else "x32"

    def setuid_programs(self):
        done = subprocess.run(["su", "-c", "id -u"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return "su worked" if done.returncode == 0 and done.stdout.strip() == b"0" else ""

    def shadow(self):
        return "read a password" if ":" in read("/etc/shadow") + read("/etc/gshadow") else ""

    def disks_and_kernel_log(self):
        for path in ("/dev/vda", "/dev/sda", "/dev/mem", "/dev/kmsg", "/proc/kcore", "/proc/kmsg"):
            if self._can_open(path):
                return path
        return ""

    def type_into_the_terminal(self):
        try:
            slave = os.openpty()[1]
        except OSError:
            return ""
        try:
            fcntl.ioctl(slave, 0x5412, b"x")
        except OSError as error:
            return "" if error.errno == errno.EPERM else f"TIOCSTI was not filtered: {error}"
        return "typed"

    def setuid_file(self):
        with open("tool", "w") as file:
            file.write("x")
        ways = {
            "chmod": lambda: os.chmod("tool", 0o4755),
            "fchmod": lambda: self._with("tool", lambda d: os.fchmod(d, 0o4755)),
            "open": lambda: os.close(os.open("tool2", os.O_CREAT | os.O_WRONLY, 0o6755)),
            "mknod": lambda: os.mknod("tool3", stat.S_IFREG | 0o4755),
        }
        for name, way in ways.items():
            try:
                way()
            except OSError:
                continue
            return name
        os.close(os.open("tool", os.O_RDONLY, 0o6755))
        return ""

    def _with(self, path, act):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            act(descriptor)
        finally:
            os.close(descriptor)

    def inherited_descriptors(self):
        listing = os.open("/proc/self/fd", os.O_RDONLY)
        found = {int(name) for name in os.listdir(listing)} - {0, 1, 2, listing}
        os.close(listing)
        alive = [number for number in found if os.path.exists(f"/proc/self/fd/{number}")]
        return f"{alive}" if alive else ""

    def capabilities(self):
        lines = [line for line in read("/proc/self/status").splitlines() if line.startswith("Cap")]
        if self.facts["user"]:
            lines = [line for line in lines if not line.startswith("CapBnd")]
        return "; ".join(line for line in lines if int(line.split()[1], 16))

    def new_privileges(self):
        return "" if "NoNewPrivs:\t1" in read("/proc/self/status") else "they may be gained"

    def system_folders(self):
        return write("/usr/escaped") or write("/etc/escaped") or write("/opt/escaped") or write("/escaped")

    def nested_box(self):
        done = subprocess.run(["bwrap", "--ro-bind", "/", "/", "true"], capture_output=True, check=False)
        return "made a box" if done.returncode == 0 else ""


def main():
    attempts = Attempts(json.loads(Path(sys.argv[1]).read_text()))
    for name in sorted(name for name in vars(Attempts) if not name.startswith("_")):
        began = time.monotonic()
        try:
            outcome = getattr(attempts, name)()
        except Exception as error:
            outcome = f"it went wrong: {type(error).__name__}: {error}"
        print(json.dumps([name, outcome, round(time.monotonic() - began, 3)]), flush=True)


if __name__ == "__main__":
    main()
