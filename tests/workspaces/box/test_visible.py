"""What of the machine is shown: what programs need, and nothing that lies beside it."""

from pathlib import Path

import pytest

from xnagent.workspaces.box.visible import lenders, private_parts, programs, sight


def folder(*parts):
    path = Path(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def test_what_programs_need_is_shown_and_no_credentials_beside_them(tmp_path):
    cargo, local = folder(tmp_path, ".cargo", "bin"), folder(tmp_path, ".local", "bin")
    (tmp_path / ".cargo" / "credentials.toml").write_text("token")
    folder(tmp_path, ".local", "share", "keyrings")
    lib = folder(tmp_path, ".local", "lib")
    found = programs({"PATH": f"{cargo}:{local}:relative:/:/nonexistent", "HOME": str(tmp_path)})
    assert found == [cargo, local, lib]


def test_an_interpreter_is_shown_with_its_library_wherever_it_is(tmp_path):
    real, lib = folder(tmp_path, "py", "bin"), folder(tmp_path, "py", "lib")
    (real / "python3").write_text("")
    venv = folder(tmp_path, "venv", "bin")
    (tmp_path / "venv" / "pyvenv.cfg").write_text("")
    (venv / "python3").symlink_to(real / "python3")
    (venv / "node").symlink_to(tmp_path / "gone")
    assert set(programs({"PATH": str(venv)})) == {venv, tmp_path / "venv" / "pyvenv.cfg", real, lib}


def test_folders_within_others_are_shown_once():
    shown = sight({"PATH": "/usr/local/bin:/usr/bin:/bin"}, has_network=True)
    assert Path("/usr") in shown.folders
    assert not [path for path in shown.folders if path != Path("/usr") and path.is_relative_to("/usr")]


def test_what_only_its_owner_may_read_is_found(tmp_path):
    (tmp_path / "open").write_text("")
    (tmp_path / "shut").write_text("")
    (tmp_path / "shut").chmod(0o640)
    folder(tmp_path, "d", "keys").chmod(0o711)
    folder(tmp_path, "d", "fine").chmod(0o755)
    (tmp_path / "d" / "shadow").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "shut")
    assert set(private_parts(str(tmp_path))) == {tmp_path / "shut", tmp_path / "d" / "keys", tmp_path / "d" / "shadow"}


@pytest.mark.parametrize("written", ["{0}", "../../two/objects", '"{0}"'])
def test_repositories_that_lend_to_lenders_are_found_and_circles_end(tmp_path, written):
    one, two = folder(tmp_path, "one", "objects"), folder(tmp_path, "two", "objects")
    for place, text in ((one, written.format(two)), (two, f"# a note\n{one}\n{tmp_path}/gone")):
        (folder(place, "info") / "alternates").write_text(f"{text}\n")
    assert lenders(one) == (one, two)
