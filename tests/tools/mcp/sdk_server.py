"""An MCP server made with the official SDK: `python sdk_server.py stdio`, or `http PORT`."""

import sys

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("sample", log_level="ERROR")


class Name(BaseModel):
    name: str


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def ask(ctx: Context) -> str:
    """Asks a person."""
    return str(await ctx.elicit("Who are you?", Name))


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run(transport="streamable-http", port=int(sys.argv[2]))
    else:
        server.run()
