"""Tools of MCP servers. The protocol's SDK is known in `sdk`, `stdio` and `http` alone, which are loaded on demand."""
