"""Reading the tools that kenari runs itself, which all three formats write alike (S116, D9)."""

from kenari.core.errors import KenariError, bad_request
from kenari.core.request import SERVED, Served
from kenari.dialects.fields import Fields

MAX_RESULTS = 10
MAX_DOMAINS = 100


def read_served(tool: Fields, kind: str, served: list[Served]) -> None:
    """Take an entry of `tools` whose type is one of ours. Raises the 400 of an unknown one: a typo must not be silent."""
    if kind not in SERVED:
        raise unknown_server_tool(kind, tool.at("type"))
    _add(served, _read(tool, kind, "", ""), tool)


def read_vendor_search(tool: Fields, kind: str, served: list[Served]) -> None:
    """A vendor's own search tool, which ours stands in for (D19)."""
    name = tool.string("name") or "web_search"
    _add(served, _read(tool, "kenari:web_search", name, kind[:64]), tool)


def unknown_server_tool(kind: str, path: str) -> KenariError:
    """The 400 of D9."""
    return bad_request(f"{path}: there is no server tool {kind[:64]!r}. choose one of {', '.join(SERVED)}", path)


def _add(served: list[Served], entry: Served, tool: Fields) -> None:
    if any(one.kind == entry.kind for one in served):
        raise tool.fault("type", f"{entry.kind} stands twice. keep one of them")
    served.append(entry)


def _read(tool: Fields, kind: str, name: str, vendor: str) -> Served:
    results = tool.integer("max_results", 1)
    if results is not None and results > MAX_RESULTS:
        raise tool.fault("max_results", f"must be from 1 to {MAX_RESULTS}")
    return Served(
        kind=kind,
        name=name,
        vendor=vendor,
        max_results=5 if results is None else results,
        max_uses=tool.integer("max_uses", 1),
        allowed_domains=_domains(tool, "allowed_domains"),
        blocked_domains=_domains(tool, "blocked_domains"),
        param=tool.path,
    )


def _domains(tool: Fields, name: str) -> tuple[str, ...]:
    """Host names, lower case, with their scheme and path taken off where somebody wrote them."""
    out: list[str] = []
    for raw in tool.elements(name) or ():
        domain = Fields({name: raw}, tool.path).string(name) or ""
        host = domain.strip().lower().partition("://")[2] or domain.strip().lower()
        host = host.split("/")[0].removeprefix("*.").strip(".")
        if not host or len(host) > 253 or any(char.isspace() for char in host):
            raise tool.fault(name, 'must be a list of host names like "example.com"')
        out.append(host)
    if len(out) > MAX_DOMAINS:
        raise tool.fault(name, f"must hold at most {MAX_DOMAINS} names")
    return tuple(out)
