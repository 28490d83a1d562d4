"""A tool server over standard input and output with one tool, as agents start it. Standard library only."""

import json
import sys
from typing import Any

TOOL = {
    "name": "look",
    "description": "Looks at a thing and says what it saw.",
    "inputSchema": {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]},
    "annotations": {"readOnlyHint": True},
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The result of one call."""
    match method:
        case "initialize":
            server = {"name": "probe", "version": "1"}
            version = params.get("protocolVersion", "2025-06-18")
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            return {"content": [{"type": "text", "text": f"the probe saw {params['arguments']['thing']}"}]}
        case _:
            return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
