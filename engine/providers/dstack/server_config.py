"""The block of dstack's *server* configuration that a backend's cloud key belongs in: printed for the user to paste.

The key itself is never printed: the block has a placeholder. Field names are those of dstack 0.19.37 to 0.22.5.
"""

from engine.errors import NotConfigured

PLACE = "~/.dstack/server/config.yml"
"""Where dstack's server reads it, on the machine it runs on."""

_BLOCKS = {
    "amddevcloud": """\
      - type: amddevcloud
        creds:
          type: api_key
          api_key: <the value of DSTACK_AMDDEVCLOUD_API_KEY>
""",
    "hotaisle": """\
      - type: hotaisle
        team_handle: <your team's handle at Hot Aisle>
        creds:
          type: api_key
          api_key: <your Hot Aisle API key>
""",
}


def backend_block(project: str, backend: str = "amddevcloud") -> str:
    """The YAML to merge into `~/.dstack/server/config.yml` on the machine dstack's server runs on.

    Raises:
        NotConfigured: a backend whose credentials we do not know.
    """
    block = _BLOCKS.get(backend)
    if block is None:
        known = " and ".join(sorted(_BLOCKS))
        raise NotConfigured(
            f"no block for backend {backend!r}: Steno knows those of {known}; see dstack's backends page"
        )
    return f"projects:\n  - name: {project}\n    backends:\n{block}"
