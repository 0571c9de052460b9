"""Request bytes of each wire, as they are sent; only the line breaks are the test's."""

import re

from inline_snapshot import snapshot

from tests.models.speaking import WIRES, call, manifest, result, said, sealed, user
from xnagent.core.ids import AgentId
from xnagent.core.items import Item
from xnagent.core.text import canonical
from xnagent.models import wires

ROUND: list[Item] = [
    user("Go."),
    user("<state>"),
    *(sealed(wire) for wire in WIRES),
    said("I look."),
    call("c1", '{"b": 1,"a":"\\u00e9", "n":1.0}'),
    call("call_2|fc_9", "", name="read"),
    result("c1", "one\ntwo"),
    result("call_2|fc_9", "BAD_ARGS: \u2028", is_error=True),
    user("<delta>"),
]
REBASED: list[Item] = [user("Go."), user("<checkpoint>"), call("c9", '{"a":'), result("c9", "", is_error=True)]


def shown(wire: str, items: list[Item], *, long_items: int = 0, agent: AgentId | None = None, **changes: str) -> str:
    """The bytes, a line for each part."""
    body = wires.encode(manifest(wire, **changes), items, long_items=long_items, agent=agent).decode()
    names = "max_|tools|system|instructions|messages|input|include|tool_calls|function|parameters|reasoning"
    text = re.sub(rf',(?=\{{"|"(?:{names}))|(?<=:\[)(?=\{{")', lambda found: found.group() + "\n", body)
    assert text.replace("\n", "") == body
    return text


def test_chat_round():
    assert shown("chat", ROUND) == snapshot("""\
{"model":"some-model","stream":true,"stream_options":{"include_usage":true},
"max_tokens":1000,
"tools":[
{"type":"function",
"function":{"name":"bash","description":"Run.",
"parameters":{"properties":{"command":{"type":"string"}},"required":["command"],"type":"object"}}},
{"type":"function",
"function":{"name":"read","description":"Read é.",
"parameters":{"properties":{},"type":"object"}}}],
"messages":[
{"role":"system","content":"Be good."},
{"role":"user","content":"Go."},
{"role":"user","content":"<state>"},
{"role":"assistant","content":"I look.",
"reasoning_content":"need ls",
"tool_calls":[
{"id":"c1","type":"function",
"function":{"name":"bash","arguments":"{\\"b\\": 1,\\"a\\":\\"\\\\u00e9\\", \\"n\\":1.0}"}},
{"id":"call_2|fc_9","type":"function",
"function":{"name":"read","arguments":"{}"}}]},
{"role":"tool","tool_call_id":"c1","content":"one\\ntwo"},
{"role":"tool","tool_call_id":"call_2|fc_9","content":"BAD_ARGS: \u2028"},
{"role":"user","content":"<delta>"}]}\
""")


def test_chat_after_rebase():
    assert shown("chat", REBASED, tools="[]", system="") == snapshot("""\
{"model":"some-model","stream":true,"stream_options":{"include_usage":true},
"max_tokens":1000,
"messages":[
{"role":"user","content":"Go."},
{"role":"user","content":"<checkpoint>"},
{"role":"assistant","content":null,
"tool_calls":[
{"id":"c9","type":"function",
"function":{"name":"bash","arguments":"{\\"unparsed_arguments\\":\\"{\\\\\\"a\\\\\\":\\"}"}}]},
{"role":"tool","tool_call_id":"c9","content":""}]}\
""")


def test_responses_round():
    assert shown("responses", ROUND) == snapshot("""\
{"model":"some-model","stream":true,"store":false,
"include":["reasoning.encrypted_content"],
"max_output_tokens":1000,"prompt_cache_key":"xn-d466417a2f8096701c417fd4543ee7a7",
"tools":[
{"type":"function","strict":false,"name":"bash","description":"Run.",
"parameters":{"properties":{"command":{"type":"string"}},"required":["command"],"type":"object"}},
{"type":"function","strict":false,"name":"read","description":"Read é.",
"parameters":{"properties":{},"type":"object"}}],
"instructions":"Be good.",
"input":[
{"role":"user","content":"Go."},
{"role":"user","content":"<state>"},
{"id":"rs_1", "type":"reasoning", "summary":[], "encrypted_content":"gAAA\\u003d=" },
{"role":"assistant","content":"I look."},
{"type":"function_call","call_id":"c1","name":"bash","arguments":"{\\"b\\": 1,\\"a\\":\\"\\\\u00e9\\", \\"n\\":1.0}"},
{"type":"function_call","call_id":"call_2|fc_9","name":"read","arguments":"{}"},
{"type":"function_call_output","call_id":"c1","output":"one\\ntwo"},
{"type":"function_call_output","call_id":"call_2|fc_9","output":"BAD_ARGS: \u2028"},
{"role":"user","content":"<delta>"}]}\
""")


def test_responses_after_rebase_with_a_breakpoint():
    options = canonical({"cache_breakpoint": True, "reasoning": {"effort": "low"}})
    assert shown("responses", REBASED, options=options, tools="[]", system="") == snapshot("""\
{"model":"some-model","stream":true,"store":false,
"include":["reasoning.encrypted_content"],
"max_output_tokens":1000,"prompt_cache_key":"xn-d466417a2f8096701c417fd4543ee7a7",
"reasoning":{"effort":"low"},
"input":[
{"role":"user","content":[
{"type":"input_text","text":"Go.","prompt_cache_breakpoint":{"mode":"explicit"}}]},
{"role":"user","content":"<checkpoint>"},
{"type":"function_call","call_id":"c9","name":"bash","arguments":"{\\"unparsed_arguments\\":\\"{\\\\\\"a\\\\\\":\\"}"},
{"type":"function_call_output","call_id":"c9","output":""}]}\
""")


def test_messages_round():
    assert shown("messages", ROUND) == snapshot("""\
{"model":"some-model",
"max_tokens":1000,"stream":true,
"tools":[
{"name":"bash","description":"Run.",
"input_schema":{"properties":{"command":{"type":"string"}},"required":["command"],"type":"object"}},
{"name":"read","description":"Read é.",
"input_schema":{"properties":{},"type":"object"}}],
"system":[
{"type":"text","text":"Be good.","cache_control":{"type":"ephemeral"}}],
"messages":[
{"role":"user","content":[
{"type":"text","text":"Go.","cache_control":{"type":"ephemeral"}},
{"type":"text","text":"<state>","cache_control":{"type":"ephemeral"}}]},
{"role":"assistant","content":[
{"type":"thinking", "thinking":"need \\u006cs", "signature":"EqQB/+=="},
{"type":"text","text":"I look."},
{"type":"tool_use","id":"c1","name":"bash",
"input":{"b": 1,"a":"\\u00e9", "n":1.0}},
{"type":"tool_use","id":"call_2_fc_9_aaee0e99cf6c","name":"read",
"input":{}}]},
{"role":"user","content":[
{"type":"tool_result","tool_use_id":"c1","content":"one\\ntwo"},
{"type":"tool_result","tool_use_id":"call_2_fc_9_aaee0e99cf6c","content":"BAD_ARGS: \u2028","is_error":true},
{"type":"text","text":"<delta>","cache_control":{"type":"ephemeral"}}]}]}\
""")


def test_messages_after_rebase_with_long_lived_caches():
    options = canonical({"cache_ttl": "1h", "thinking": {"type": "adaptive"}})
    assert shown("messages", REBASED, options=options, system="") == snapshot("""\
{"model":"some-model",
"max_tokens":1000,"stream":true,"thinking":{"type":"adaptive"},
"tools":[
{"name":"bash","description":"Run.",
"input_schema":{"properties":{"command":{"type":"string"}},"required":["command"],"type":"object"}},
{"name":"read","description":"Read é.",
"input_schema":{"properties":{},"type":"object"},"cache_control":{"type":"ephemeral","ttl":"1h"}}],
"messages":[
{"role":"user","content":[
{"type":"text","text":"Go.","cache_control":{"type":"ephemeral","ttl":"1h"}},
{"type":"text","text":"<checkpoint>","cache_control":{"type":"ephemeral","ttl":"1h"}}]},
{"role":"assistant","content":[
{"type":"tool_use","id":"c9","name":"bash",
"input":{"unparsed_arguments":"{\\"a\\":"}}]},
{"role":"user","content":[
{"type":"tool_result","tool_use_id":"c9","content":"(empty)","is_error":true,"cache_control":{"type":"ephemeral","ttl":"1h"}}]}]}\
""")


def test_chat_with_an_explicit_breakpoint():
    options = canonical({"cache_breakpoint": True})
    assert shown("chat", [user("Go."), user("<state>")], tools="[]", options=options) == snapshot("""\
{"model":"some-model","stream":true,"stream_options":{"include_usage":true},
"max_tokens":1000,"prompt_cache_key":"xn-d466417a2f8096701c417fd4543ee7a7",
"messages":[
{"role":"system","content":"Be good."},
{"role":"user","content":[
{"type":"text","text":"Go.","prompt_cache_breakpoint":{"mode":"explicit"}}]},
{"role":"user","content":"<state>"}]}\
""")


def test_responses_with_an_explicit_breakpoint():
    options = canonical({"cache_breakpoint": True})
    assert shown("responses", [user("Go."), user("<state>")], tools="[]", options=options) == snapshot("""\
{"model":"some-model","stream":true,"store":false,
"include":["reasoning.encrypted_content"],
"max_output_tokens":1000,"prompt_cache_key":"xn-d466417a2f8096701c417fd4543ee7a7",
"instructions":"Be good.",
"input":[
{"role":"user","content":[
{"type":"input_text","text":"Go.","prompt_cache_breakpoint":{"mode":"explicit"}}]},
{"role":"user","content":"<state>"}]}\
""")


def test_messages_with_both_lifetimes():
    assert shown("messages", ROUND, tools="[]", long_items=2) == snapshot("""\
{"model":"some-model",
"max_tokens":1000,"stream":true,
"system":[
{"type":"text","text":"Be good.","cache_control":{"type":"ephemeral","ttl":"1h"}}],
"messages":[
{"role":"user","content":[
{"type":"text","text":"Go.","cache_control":{"type":"ephemeral","ttl":"1h"}},
{"type":"text","text":"<state>","cache_control":{"type":"ephemeral","ttl":"1h"}}]},
{"role":"assistant","content":[
{"type":"thinking", "thinking":"need \\u006cs", "signature":"EqQB/+=="},
{"type":"text","text":"I look."},
{"type":"tool_use","id":"c1","name":"bash",
"input":{"b": 1,"a":"\\u00e9", "n":1.0}},
{"type":"tool_use","id":"call_2_fc_9_aaee0e99cf6c","name":"read",
"input":{}}]},
{"role":"user","content":[
{"type":"tool_result","tool_use_id":"c1","content":"one\\ntwo"},
{"type":"tool_result","tool_use_id":"call_2_fc_9_aaee0e99cf6c","content":"BAD_ARGS: \u2028","is_error":true},
{"type":"text","text":"<delta>","cache_control":{"type":"ephemeral"}}]}]}\
""")


def test_chat_pinned_to_a_slot():
    options = canonical({"slots": 3, "temperature": 0})
    assert shown("chat", REBASED[:1], agent=AgentId("r2"), options=options, tools="[]") == snapshot("""\
{"model":"some-model","stream":true,"stream_options":{"include_usage":true},
"max_tokens":1000,"id_slot":2,"return_progress":true,"temperature":0,
"messages":[
{"role":"system","content":"Be good."},
{"role":"user","content":"Go."}]}\
""")
