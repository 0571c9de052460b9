"""M112: what rules gate is never deferred."""

import json

from tests.e2e.bench import Bench, finish, scripted, start, submit, task
from xnagent.testing.server import ScriptedServer


async def test_m112_a_tool_that_rules_gate_stands_in_the_request_with_its_full_schema(bench: Bench):
    def script():
        return scripted(start(task("one")), finish("r1 settled: completed"), workers={"one": [submit()]})

    with ScriptedServer(script()) as server:
        await bench.run(server)
    free = _worker_tools(server)
    gated = Bench(bench.folder / "gated")
    with ScriptedServer(script()) as server:
        await gated.run(
            server,
            permissions__allow=["Bash(npm run *)", "Edit(src/**)"],
            permissions__deny=["Read(.env)", "Grep(x/**)"],
        )
    assert _worker_tools(server) == free
    for name in ("bash", "edit", "write", "read", "grep"):
        assert free[name]["parameters"]["properties"], name
        assert free[name]["description"], name


def _worker_tools(server: ScriptedServer) -> dict[str, dict]:
    offered = [json.loads(body)["tools"] for body in server.bodies]
    found = [{tool["function"]["name"]: tool["function"] for tool in tools} for tools in offered]
    return next(tools for tools in found if "bash" in tools)
