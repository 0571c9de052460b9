"""B007, B039: what models are told about the tools; the definitions are the cached prefix."""

import json
import textwrap

from inline_snapshot import snapshot

from tests.tools.scene import PlainShell
from xnagent.tools.registry import planner_tools, worker_tools


def definitions(tools):
    return {tool.spec.name: (textwrap.wrap(tool.spec.description, 90), shown(tool.spec.parameters)) for tool in tools}


def shown(schema):
    fields = {
        name: (field["type"], *textwrap.wrap(field["description"], 90)) for name, field in schema["properties"].items()
    }
    return {**schema, "properties": fields}


def test_names_and_arguments_are_those_of_the_contract():
    tools = worker_tools(PlainShell())
    assert {tool.spec.name: list(tool.spec.parameters["properties"]) for tool in tools} == {
        "bash": ["command", "timeout_seconds"],
        "edit": ["path", "old", "new", "all"],
        "glob": ["pattern", "path"],
        "grep": ["pattern", "path", "glob", "context"],
        "read": ["path", "offset", "limit"],
        "write": ["path", "content"],
    }
    assert [tool.spec.name for tool in tools] == sorted(tool.spec.name for tool in tools)


def test_schemas_are_strict_described_and_stable():
    for make in (lambda: worker_tools(PlainShell()), planner_tools):
        first, second = make(), make()
        assert json.dumps(definitions(first)) == json.dumps(definitions(second))
        for tool in first:
            schema = tool.spec.parameters
            assert schema["additionalProperties"] is False
            assert set(schema["required"]) <= set(schema["properties"])
            assert all(field["description"] and field["type"] for field in schema["properties"].values())


def test_the_workers_tools():
    assert definitions(worker_tools(PlainShell())) == snapshot(
        {
            "bash": (
                [
                    "Run a command with bash. Each call is a new shell in the workspace root: cd, variables and",
                    "functions do not last to the next call, so join what belongs together with &&. Standard",
                    "input is empty; nothing can be answered, so pass flags such as -y. Output and errors come",
                    "together, with head and tail if they are long, and the whole output is kept under a ticket",
                    "for read and grep. The last line tells the exit code, which is data, not an error of the",
                    "tool. Background processes are ended when the shell ends. Use read, edit, write, grep and",
                    "glob for files rather than cat, sed, echo and find.",
                ],
                {
                    "type": "object",
                    "properties": {
                        "command": ("string", "What to run; may have several lines."),
                        "timeout_seconds": (
                            "integer",
                            "Stop it after so many seconds. Default 120; more than 600 is taken as 600.",
                        ),
                    },
                    "required": ["command"],
                    "additionalProperties": False,
                },
            ),
            "edit": (
                [
                    "Replace text in a file. `old` must be in the file exactly once, so give enough lines",
                    "around the change; with all=true every place is replaced. Copy `old` from read without the",
                    "line numbers. `new` is taken literally. Line ends, byte order mark and mode are kept. If",
                    "`old` is not found exactly, differences in line ends, trailing whitespace, indentation as",
                    "a whole, tabs for spaces, or look-alike quotes, dashes and spaces are bridged where only",
                    "one place fits, and the result says so. On NO_MATCH or NOT_UNIQUE nothing was changed: the",
                    "message shows the nearest lines or all places. For a new file or a whole content use",
                    "write.",
                ],
                {
                    "type": "object",
                    "properties": {
                        "path": ("string", "File, relative to the workspace root."),
                        "old": ("string", "The text to replace, not empty."),
                        "new": ("string", "The text that shall stand there; empty deletes."),
                        "all": ("boolean", "Replace every place. Default false."),
                    },
                    "required": ["path", "old", "new"],
                    "additionalProperties": False,
                },
            ),
            "glob": (
                [
                    "List files and directories (marked with `/`) by a pattern, sorted by path, at most 200.",
                    "`*` and `?` stay within one name, `**` stands for any number of directories, `{a,b}` for",
                    "either: `**/*.py`, `src/**/test_*.{ts,tsx}`. Hidden files are listed; .git never; what",
                    ".gitignore names only if nothing else matches. Links are not followed.",
                ],
                {
                    "type": "object",
                    "properties": {
                        "pattern": ("string", "Pattern, relative to path."),
                        "path": ("string", "Directory to look in. Default: the workspace root."),
                    },
                    "required": ["pattern"],
                    "additionalProperties": False,
                },
            ),
            "grep": (
                [
                    "Search file contents with a regular expression, line by line (no look-around, no back-",
                    "references). Results are `path:line:text`, sorted by path; at most 100 matches, lines cut",
                    "at 300 characters. Hidden files are searched; .git, binary files and what .gitignore names",
                    "are not, unless path names them. To search literally, escape `. * + ? ( ) [ ] { } ^ $ | \\`",
                    "with a backslash.",
                ],
                {
                    "type": "object",
                    "properties": {
                        "pattern": ("string", "Regular expression; `(?i)` in front ignores case."),
                        "path": ("string", "File, directory or ticket to search. Default: everything."),
                        "glob": ("string", "Only files like this: `*.py`, `src/**/*.{ts,tsx}`, `!*.md`."),
                        "context": ("integer", "Lines to show before and after each match, up to 10."),
                    },
                    "required": ["pattern"],
                    "additionalProperties": False,
                },
            ),
            "read": (
                [
                    "Read a text file, a directory's entries, or a stored output by its ticket (artifact:…).",
                    "Lines come as `number<tab>text`: the number is not part of the file. One call shows at",
                    "most 2,000 lines and 50,000 bytes; a line is cut at 2,000 characters (48,000 with",
                    "limit=1). The last line tells the offset to continue with. A page that you have read and",
                    "that is unchanged is answered by a reference to that result. To find something in a large",
                    "file use grep first. Binary files are refused.",
                ],
                {
                    "type": "object",
                    "properties": {
                        "path": (
                            "string",
                            "File or directory, relative to the workspace root, or a ticket such as",
                            "artifact:0123456789abcdef.",
                        ),
                        "offset": ("integer", "First line, from 1; negative counts from the end. Default 1."),
                        "limit": ("integer", "Number of lines. Default and maximum 2000."),
                    },
                    "required": ["path"],
                    "additionalProperties": False,
                },
            ),
            "write": (
                [
                    "Create a file, or replace the whole content of one. Missing folders are made. An existing",
                    "file can be replaced only if you have read it and it has not changed since (NOT_READ,",
                    "STALE: read it, then write again). The content is written exactly as given; a byte order",
                    "mark and the file's mode are kept. To change a part of a file use edit.",
                ],
                {
                    "type": "object",
                    "properties": {
                        "path": ("string", "File, relative to the workspace root."),
                        "content": ("string", "The whole content, usually ending with a line end."),
                    },
                    "required": ["path", "content"],
                    "additionalProperties": False,
                },
            ),
        }
    )


def test_the_planners_reader():
    assert definitions(planner_tools())["read"] == snapshot(
        (
            [
                "Read a text file, a directory's entries, or a stored output by its ticket (artifact:…).",
                "Lines come as `number<tab>text`: the number is not part of the file. One call shows at",
                "most 2,000 lines and 50,000 bytes; a line is cut at 2,000 characters (48,000 with",
                "limit=1). The last line tells the offset to continue with. A page that you have read and",
                "that is unchanged is answered by a reference to that result. To find something in a large",
                "file use grep first. Binary files are refused.",
            ],
            {
                "type": "object",
                "properties": {
                    "target": (
                        "string",
                        "A ticket such as artifact:0123456789abcdef, or a file or directory relative to the",
                        "workspace root.",
                    ),
                    "offset": ("integer", "First line, from 1; negative counts from the end. Default 1."),
                    "limit": ("integer", "Number of lines. Default and maximum 2000."),
                },
                "required": ["target"],
                "additionalProperties": False,
            },
        )
    )
