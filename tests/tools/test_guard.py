"""Rules in front of tools, on real files."""

from pathlib import Path

import pytest

from tests.tools.scene import Scene
from xnagent.core.permissions import Rules, parse_rule
from xnagent.tools.guard import guarded, taken_away
from xnagent.tools.registry import worker_tools
from xnagent.tools.toolbox import toolbox


def rules(*, allow=(), deny=(), narrow=()) -> Rules:
    return Rules(
        allow=tuple(map(parse_rule, allow)), deny=tuple(map(parse_rule, deny)), narrow=tuple(map(parse_rule, narrow))
    )


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    scene = Scene(tmp_path)
    scene.put("src/a.py", "needle = 1\n")
    scene.put("keys/k", "needle = 2\n")
    (scene.root / "link").symlink_to("keys")
    return scene


def under(scene: Scene, chosen: Rules) -> Scene:
    scene.tools = {tool.spec.name: tool for tool in worker_tools(scene.shell, rules=chosen)}
    return scene


@pytest.mark.parametrize("path", ["keys/k", "./keys//k", "src/../keys/k", "link/k", "{root}/keys/k", "keys"])
async def test_B071_every_way_to_name_a_denied_file_is_denied(scene: Scene, path: str):
    outcome = await under(scene, rules(deny=["Read(keys/**)"])).do("read", path=path.format(root=scene.root))
    assert outcome.code == "DENIED"
    assert "rule Read(keys/**)" in outcome.text
    assert "needle" not in outcome.text


async def test_a_search_shows_nothing_of_what_may_not_be_read(scene: Scene):
    outcome = await under(scene, rules(deny=["Read(keys/**)"])).do("grep", pattern="needle")
    assert outcome.text.startswith("src/a.py:1:")
    assert "keys" not in outcome.text
    outcome = await under(scene, rules(allow=["Read(keys/**)"])).do("grep", pattern="needle")
    assert "src/a.py" not in outcome.text


async def test_what_the_tool_refuses_itself_is_left_to_it(scene: Scene):
    outcome = await under(scene, rules(allow=["Read(src/**)"])).do("read", path="../outside")
    assert outcome.code == "OUTSIDE"


async def test_M107_a_ticket_is_no_path(scene: Scene):
    ticket = scene.artifacts.put(b"stored\n")
    outcome = await under(scene, rules(allow=["Read(src/**)"], deny=["Read(artifact*)"])).do("read", path=ticket)
    assert (outcome.code, "stored" in outcome.text) == ("ok", True)


async def test_a_denied_command_is_never_begun(scene: Scene):
    for chosen, told in (
        (rules(deny=["Bash(touch *)"]), "rule Bash(touch *) forbids `touch made`"),
        (rules(allow=["Bash(ls)"]), "--allow RULE"),
        (rules(narrow=["Bash(ls)"]), "-s permissions.narrow=[]"),
    ):
        outcome = await under(scene, chosen).do("bash", command="ls && touch made")
        assert outcome.code == "DENIED"
        assert told in outcome.text
    assert scene.shell.ran == []
    assert not (scene.root / "made").exists()


def test_M28_a_guard_changes_no_definition(scene: Scene):
    plain, guarded_ = worker_tools(scene.shell), worker_tools(scene.shell, rules=rules(deny=["Bash(x)", "Read(y)"]))
    assert toolbox(plain).definitions == toolbox(guarded_).definitions
    assert guarded(plain, Rules()) == list(plain)


def test_a_tool_that_is_taken_away_answers_with_its_rule(scene: Scene):
    chosen = rules(deny=["Write", "grep"])
    assert set(taken_away(chosen)) == {"edit", "write", "grep"}
    box = toolbox(worker_tools(scene.shell, rules=chosen), forbidden=taken_away(chosen)).with_tools([])
    assert set(box.tools) == {"bash", "read", "glob"}
    assert box.parse("edit", "{}").text.startswith("DENIED: rule Write forbids `edit`.")
    assert box.parse("nonsense", "{}").code == "UNKNOWN_TOOL"
