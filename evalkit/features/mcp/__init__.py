"""MCP servers as agents, and the functions of a case as a mock MCP server."""
