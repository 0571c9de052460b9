"""What a run may use, and what is said when it is more."""

import pytest

from tests.workspaces.box.conftest import Ground
from xnagent.workspaces.box.groups import Groups
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


@pytest.mark.parametrize(
    ("own", "files", "controllers", "folders"),
    [
        ("8:pids:/\n4:memory:/a/b\n", ["pids", "memory/a/b"], {"pids", "memory"}, ["pids", "memory/a/b"]),
        ("4:memory:/gone\n", ["memory"], {"memory"}, ["memory"]),
        ("2:cpu,cpuacct:/\n", ["cpu"], set(), []),
        ("", [], set(), []),
    ],
)
def test_version_1_has_a_folder_for_each_controller(tmp_path, own, files, controllers, folders):
    (tmp_path / "own").write_text(own)
    for name in files:
        (tmp_path / name).mkdir(parents=True)
    groups = Groups(rules=Rules(memory_bytes=5, processes=6), root=tmp_path, own=tmp_path / "own")
    group = groups.of(tmp_path)
    assert set(group.controllers) <= controllers
    assert [path.parent for path in group.folders] == [tmp_path / name for name in folders][: len(group.folders)]


def test_sizes_are_told_for_people():
    assert [sized(5), sized(2048), sized(5 * 1024**3)] == ["5 bytes", "2 KiB", "5.0 GiB"]


async def test_sockets_alone_can_be_shut(tmp_path, python):
    ground = Ground(tmp_path, "sockets")
    command = f"{python} -c 'import socket; socket.socket()' 2>&1 | tail -1; cat {__file__} | wc -l"
    _, output = await ground.run(command)
    assert "Operation not permitted" in output
    assert int(output.split()[-1]) > 10
