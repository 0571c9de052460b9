"""Scripts from files and data."""

import json

import pytest

from xnagent.testing.script import Fault, load_script, parse_script

TOML = """
worker_wait = "hm"

[[planner]]
when = ["a", "b"]
text = "x"
calls = [{ name = "plan", arguments = { tasks = [] } }, { name = "bash", arguments = "{", id = "" }]

[[planner]]
times = 0
fault = { status = 503, headers = { Retry-After = "1" } }

[[worker]]
match = "Task a"
text = "1"

[[worker]]
match = "Task a"
text = "2"

[[worker]]
match = "Task b"
attempt = 2
wait = "w"
[[worker.steps]]
fault = { hang = true }
"""


def test_toml_and_json_are_the_same_shape(tmp_path):
    toml, as_json = tmp_path / "s.toml", tmp_path / "s.json"
    toml.write_text(TOML, encoding="utf-8")
    script = load_script(toml)
    (planner,) = script.planner
    assert [rule.times for rule in planner.rules] == [1, 0]
    assert planner.rules[0].when == ("a", "b")
    assert [call.text for call in planner.rules[0].reply.calls] == ['{"tasks": []}', "{"]
    assert planner.rules[1].reply.fault == Fault(status=503, headers={"Retry-After": "1"})
    first, second = script.worker
    assert ([r.reply.text for r in first.rules], first.match, first.wait) == (["1", "2"], "Task a", "hm")
    assert (second.attempt, second.wait, second.rules[0].reply.fault.hang) == (2, "w", "start")
    as_json.write_text(json.dumps({"worker": [{"text": "1"}]}), encoding="utf-8")
    assert load_script(as_json).worker[0].rules[0].reply.text == "1"


@pytest.mark.parametrize(
    "data",
    [
        {"workers": []},
        {"worker": [{"txet": "x"}]},
        {"worker": [{"steps": [{"text": "x"}], "text": "y"}]},
        {"worker": [{"calls": [{"nmae": "x"}]}]},
        {"worker": [{"fault": {"code": 5}}]},
    ],
)
def test_unknown_keys_are_refused(data: dict[str, object]):
    with pytest.raises(ValueError, match=r"unknown key .*known:"):
        parse_script(data)
