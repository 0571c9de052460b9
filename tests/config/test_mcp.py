"""Settings of MCP servers: names that fit into those of tools, variables instead of values, never from a repository."""

from pathlib import Path

import pytest

from xnagent.config import Settings
from xnagent.config.load import Sources, load_settings
from xnagent.config.secrets import mask_for
from xnagent.config.sources import from_assignment
from xnagent.errors import UsageError

SERVER = '[mcp.servers.git]\ncommand = "git-server"\n'


def loaded(folder: Path, text: str, *options: str) -> Settings:
    file = folder / "config.toml"
    file.write_text(text)
    return load_settings(Sources(environ={}, files=[file], options=list(map(from_assignment, options))))


def test_servers_come_from_tables_and_options(tmp_path: Path):
    web = '[mcp.servers.web]\nurl = "https://x/mcp"\n[mcp.servers.web.headers_env]\nX-Key = "K"\n'
    text = f'{SERVER}args = ["-r", "."]\n{web}'
    servers = loaded(tmp_path, text, "mcp.servers.git.required=true", "mcp.servers.web.tools=['a']").mcp.servers
    assert (servers["git"].args, servers["git"].required) == (("-r", "."), True)
    assert (servers["web"].headers_env, servers["web"].tools) == ({"X-Key": "K"}, ("a",))
    assert servers["git"].env == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[mcp.servers.git]\ncomand = "x"\n', 'did you mean "mcp.servers.git.command"?'),
        ('[mcp.servers."a__b"]\ncommand = "x"\n', "should match pattern"),
        (f'{SERVER}url = "http://x"\n', "either a command or a url"),
        ("[mcp.servers.git]\nrequired = true\n", "either a command or a url"),
        (f'{SERVER}bearer_env = "T"\n', "for servers with a url"),
        ('[mcp.servers.a]\nurl = "http://x"\nargs = ["x"]\n', "for servers with a command"),
        ('[mcp.servers.a]\nurl = "http://u:sk-1@x"\n', "a key has no place in an address"),
        ('[mcp.servers.a]\nurl = "http://x"\nbearer_env = "Bearer sk-1"\n', "should match pattern"),
        (f'{SERVER}env = ["TOKEN=sk-1"]\n', "should match pattern"),
    ],
)
def test_what_cannot_be_meant_is_told_and_no_value_is_repeated(tmp_path: Path, text: str, told: str):
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, text)
    assert told in str(caught.value)
    assert "sk-1" not in str(caught.value)


def test_a_repository_may_not_add_a_server(tmp_path: Path):
    (tmp_path / ".xnagent.toml").write_text(SERVER)
    with pytest.raises(UsageError, match=r'a repository may not set "mcp\.servers\.git\.command"'):
        load_settings(Sources(environ={}, repository=tmp_path))


def test_what_a_server_is_told_in_headers_is_masked_whatever_its_variable_is_called(tmp_path: Path):
    text = '[mcp.servers.a]\nurl = "http://x"\nbearer_env = "A"\n[mcp.servers.a.headers_env]\nX = "B"\n'
    mask = mask_for({"A": "plain-value-1", "B": "plain-value-2"}, loaded(tmp_path, text))
    assert mask.text("plain-value-1 plain-value-2") == "[secret:A] [secret:B]"
