"""What a run may use, and what is said when it is more."""

import os
import resource
from hashlib import sha256
from pathlib import Path

import pytest

from tests.workspaces.box.conftest import Ground
from xnagent.workspaces.box.groups import Groups, _offered
from xnagent.workspaces.box.sealing import Rules
from xnagent.workspaces.box.watching import sized

MANY_BYTES = 300 * 1024 * 1024
HUNGRY = 'python3 -c "x = bytearray(900_000_000); print(len(x))"; echo rc $?'


async def test_memory_is_limited_and_said(ground, python):
    command = HUNGRY.replace("python3", python)
    _, output = await ground.run(command, memory_bytes=MANY_BYTES)
    assert "900000000" not in output
    assert "[killed: out of memory (limit 300 MiB for all processes of the run)]" in output


async def test_a_fork_bomb_is_bounded_and_ends_with_the_command(ground):
    _, output = await ground.run(":(){ :|:& };:; sleep 1; echo after", processes=48, timeout_seconds=3)
    assert "no more than 48 processes" in output or "[killed: more than 48 processes at once]" in output
    assert (await ground.run("echo fine"))[1] == "fine\n"


async def test_a_full_disk_is_prevented(ground):
    command = "for n in $(seq 8); do head -c 20000000 /dev/zero > f$n; done; sleep 20; echo all"
    finished, output = await ground.run(command, disk_bytes=100 * 1024 * 1024, timeout_seconds=40)
    assert (finished.exit_code, finished.ending) == (None, "signal")
    assert output == "[killed: the run had filled more than 100 MiB of the disk]\n"


async def test_a_file_cannot_grow_over_the_limit(ground):
    finished, output = await ground.run("exec dd if=/dev/zero of=f bs=1M count=50", file_bytes=10 * 1024 * 1024)
    assert finished.exit_code == 153
    assert output.endswith("[killed: a file would have grown over 10 MiB]\n")
    assert (ground.tree.root / "f").stat().st_size == 10 * 1024 * 1024


@pytest.mark.parametrize(
    ("printed", "hint"),
    [
        ("curl: (6) Could not resolve host: example.org", "[blocked: network is off in this sandbox]"),
        ("touch: /usr/x: Read-only file system", "[blocked: only the workspace, $HOME and $TMPDIR can be written in"),
        ("all is well", ""),
    ],
)
async def test_a_failure_that_the_box_caused_is_explained(ground, printed, hint):
    _, output = await ground.run(f"echo '{printed}'; exit 1")
    assert output.removeprefix(f"{printed}\n").startswith(hint)
    assert (hint == "") == (output == f"{printed}\n")
    assert (await ground.run(f"echo '{printed}'"))[1] == f"{printed}\n"


async def test_the_network_can_be_opened(ground, python):
    code = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname())"
    assert (await ground.run(f'{python} -W ignore -c "{code}"', network=True))[0].exit_code == 0


async def test_unix_sockets_can_be_opened(ground, python):
    code = "import socket; socket.socket(socket.AF_UNIX).bind('s')"
    assert (await ground.run(f'{python} -W ignore -c "{code}"'))[0].exit_code == 1
    assert (await ground.run(f'{python} -W ignore -c "{code}"', unix_sockets=True))[0].exit_code == 0
    pair = "import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))"
    assert (await ground.run(f'{python} -W ignore -c "{pair}"'))[1] == "b'x'\n"


def tree(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


async def test_processor_time_of_a_process_is_limited_and_said(ground):
    """It may clean up; who does not end is killed by the kernel, 5 s of processor time later."""
    command = "ulimit -S -t; ulimit -H -t; sh -c 'while :; do :; done'; exit $?"
    finished, output = await ground.run(command, cpu_seconds=1)
    assert (finished.exit_code, output.split()[:2]) == (152, ["1", "6"])
    assert output.endswith("[killed: a process had used 1 s of processor time]\n")


async def test_who_only_prints_the_words_was_not_killed(ground):
    finished, output = await ground.run("echo 'CPU time limit exceeded'")
    assert (finished.exit_code, output) == (0, "CPU time limit exceeded\n")


async def test_open_files_of_a_process_are_limited_and_said(ground, python):
    code = "f = [open('/dev/null') for _ in range(100)]"
    finished, output = await ground.run(f'ulimit -n; {python} -c "{code}"', open_files=64)
    assert (finished.exit_code, output.split()[0]) == (1, "64")
    assert output.endswith("[blocked: no more than 64 open files in a process of this sandbox]\n")
    assert (await ground.run(f'ulimit -n; {python} -c "{code}"'))[1] == "4096\n"


async def test_a_limit_that_is_lower_already_stays(ground):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if os.geteuid() == 0:
        pytest.skip("root may raise limits")
    assert int((await ground.run("ulimit -n", open_files=2 * hard))[1]) <= hard


async def test_processors_are_limited_where_control_groups_can_be_made_and_a_timeout_says_so(ground):
    if "cpu" not in controllers(processors=0.05):
        pytest.skip("no control group with `cpu` can be made here")
    finished, output = await ground.run("while :; do :; done", processors=0.05, timeout_seconds=2)
    assert (finished.ending, output) == ("timeout", "[slowed: no more than 0.05 processors at once in this sandbox]\n")


def controllers(**rules):
    """What can be limited by control groups on this machine."""
    groups = Groups(rules=Rules(**rules))
    found = groups.of(Path("/probe"))
    groups.close()
    return found.controllers


@pytest.mark.parametrize(
    ("own", "files", "controllers", "folders"),
    [
        ("8:pids:/\n4:memory:/a/b\n", ["pids", "memory/a/b"], {"pids", "memory"}, ["pids", "memory/a/b"]),
        ("4:memory:/gone\n", ["memory"], {"memory"}, ["memory"]),
        ("2:cpu,cpuacct:/\n", ["cpu,cpuacct"], {"cpu"}, ["cpu,cpuacct"]),
        ("2:freezer:/\n", ["freezer"], set(), []),
        ("", [], set(), []),
    ],
)
def test_version_1_has_a_folder_for_each_controller(tmp_path, own, files, controllers, folders):
    (tmp_path / "own").write_text(own)
    for name in files:
        (tmp_path / name).mkdir(parents=True)
        prepare(tmp_path / name, "memory.limit_in_bytes", "pids.max", "cpu.cfs_quota_us")
    groups = Groups(rules=LIMITED, root=tmp_path, own=tmp_path / "own")
    group = groups.of(tmp_path)
    assert group.controllers == controllers
    assert [path.parent for path in group.folders] == [tmp_path / name for name in folders]
    assert group.joins == tuple(path / "tasks" for path in group.folders)
    assert group.version == (1 if folders else 0)


LIMITED = Rules(memory_bytes=5, processes=6, processors=1.5)
KERNEL_MAKES = ("memory.max", "memory.swap.max", "pids.max", "cpu.max", "cgroup.controllers", "cgroup.procs")


def prepare(parent, *names):
    """What the kernel would put into the group of this process: a folder on a disk stays empty."""
    folder = parent / group_name(parent)
    folder.mkdir()
    for name in names:
        (folder / name).touch()
    return folder


def group_name(parent):
    root = next(path for path in (parent, *parent.parents) if (path / "own").exists())
    return f"xnagent-{os.getpid()}-{sha256(str(root).encode()).hexdigest()[:12]}"


def offering(place, offered, *, passed_on):
    """A folder of version 2."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "cgroup.controllers").write_text(f"{offered}\n")
    (place / "cgroup.subtree_control").write_text(f"{passed_on}\n")


@pytest.mark.parametrize(
    ("own", "places", "chosen", "controllers"),
    [
        ("0::/\n", {".": "cpu memory pids"}, ".", {"cpu", "memory", "pids"}),
        ("0::/a/run.scope\n", {".": "memory", "a": "memory pids", "a/run.scope": ""}, "a", {"memory", "pids"}),
        ("0::/a/run.scope\n", {".": "memory pids cpu", "a": "", "a/run.scope": ""}, ".", {"cpu", "memory", "pids"}),
        ("0::/s\n", {".": "", "s": "pids"}, "s", {"pids"}),
        ("0::/\n", {".": "hugetlb io"}, None, set()),
        ("0::/gone\n", {}, None, set()),
    ],
)
def test_version_2_has_one_folder_below_the_place_that_can_limit_most(tmp_path, own, places, chosen, controllers):
    (tmp_path / "own").write_text(own)
    for name, passed_on in places.items():
        offering(tmp_path / name, passed_on, passed_on=passed_on)
    made = None if chosen is None else prepare(tmp_path / chosen, *KERNEL_MAKES, "memory.events", "pids.events")
    groups = Groups(rules=LIMITED, root=tmp_path, own=tmp_path / "own")
    group = groups.of(tmp_path)
    assert group.controllers == controllers
    assert group.folders == (() if made is None else (made,))
    assert group.version == (0 if made is None else 2)
    if made is None:
        return
    assert group.joins == (made / "cgroup.procs",)
    wanted = {"memory": ("memory.max", "5"), "pids": ("pids.max", "6"), "cpu": ("cpu.max", "150000")}
    for controller, (name, limit) in wanted.items():
        assert (made / name).read_text() == (limit if controller in controllers else "")
    (made / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
    (made / "pids.events").write_text("max 7\n")
    expected = {"memory": 2, "pids": 7, "cpu": 0}
    assert group.counts() == {name: expected[name] for name in controllers}


@pytest.mark.parametrize("broken", ["cpu.max", "memory.max", "pids.max"])
def test_a_limit_that_cannot_be_set_leaves_the_others(tmp_path, broken):
    (tmp_path / "own").write_text("0::/\n")
    offering(tmp_path, "cpu memory pids", passed_on="cpu memory pids")
    folder = prepare(tmp_path, *(name for name in KERNEL_MAKES if name != broken))
    (folder / broken).mkdir()
    group = Groups(rules=LIMITED, root=tmp_path, own=tmp_path / "own").of(tmp_path)
    assert group.controllers == {"cpu", "memory", "pids"} - {broken.partition(".")[0]}


def test_version_2_is_asked_for_what_it_offers_and_does_not_pass_on_yet(tmp_path):
    """One by one: together, one that is not offered would be the end of all."""
    (tmp_path / "own").write_text("0::/\n")
    offering(tmp_path, "cpu memory", passed_on="")
    asked = []

    class Control(type(tmp_path)):
        def write_text(self, text, *_):
            asked.append(text)
            if text == "+cpu":
                raise OSError(16, "busy")

    assert _offered(Control(tmp_path), frozenset({"cpu", "memory", "pids"})) == frozenset()
    assert asked == ["+cpu", "+memory"]


def unified():
    """Where version 2 is on this machine, and what it offers."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    place = next((Path(fields[1]) for fields in lines if fields[2] == "cgroup2"), None)
    if place is None:
        pytest.skip("no cgroup2 is mounted here")
    return place, set((place / "cgroup.controllers").read_text().split())


def test_a_real_version_2_that_offers_nothing_of_use_limits_nothing_and_is_left_as_it_was(tmp_path):
    place, offered = unified()
    if offered & {"memory", "pids", "cpu"}:
        pytest.skip("version 2 offers memory, pids or cpu here")
    before = sorted(path.name for path in place.iterdir())
    (tmp_path / "own").write_text("0::/\n")
    groups = Groups(rules=LIMITED, root=place, own=tmp_path / "own")
    assert (groups.of(tmp_path).folders, groups.of(tmp_path).controllers) == ((), frozenset())
    groups.close()
    assert sorted(path.name for path in place.iterdir()) == before


async def test_a_real_version_2_holds_what_a_run_uses(ground, python):
    place, offered = unified()
    if not {"memory", "pids"} <= offered:
        pytest.skip(f"cgroup v2 offers {' '.join(sorted(offered)) or 'nothing'} here, not memory and pids")
    groups = Groups(rules=Rules(memory_bytes=MANY_BYTES, processes=64), root=place)
    group = groups.of(ground.tree.scratch)
    groups.close()
    if not {"memory", "pids"} <= group.controllers:
        pytest.skip("no cgroup v2 is delegated to this user here")
    assert group.version == 2
    command = HUNGRY.replace("python3", python)
    _, output = await ground.run(command, memory_bytes=MANY_BYTES, processes=64)
    assert "[killed: out of memory (limit 300 MiB" in output


def test_sizes_are_told_for_people():
    assert [sized(5), sized(2048), sized(5 * 1024**3)] == ["5 bytes", "2 KiB", "5.0 GiB"]


async def test_sockets_alone_can_be_shut(tmp_path, python):
    ground = Ground(tmp_path, "sockets")
    command = f"{python} -c 'import socket; socket.socket()' 2>&1 | tail -1; cat {__file__} | wc -l"
    _, output = await ground.run(command)
    assert "Operation not permitted" in output
    assert int(output.split()[-1]) > 10
