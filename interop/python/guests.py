"""What the checks of the frameworks share: where the agents are, and how a check is told.

Every check compares whole texts, so that an answer that lost a piece and one that came twice both fail.
"""

import sys
from importlib.metadata import version

BASE, TOKEN = sys.argv[1].rstrip("/"), sys.argv[2]
PATIENCE = 20

# What the agent `stream` says when it is asked for chunks: so many, and so many ms apart.
ASK_FOR_CHUNKS = "4 100"
WHOLE = "".join(f"chunk {number} of 4\n" for number in range(1, 5))

# What the agent `count` says of this text: its artifact, in chunks, and its message.
COUNTED = "the cat and the dog"
COUNTS = "2 the\n1 cat\n1 and\n1 dog\n"
COUNT = "5 words, 4 different ones"


def url(agent):
    """All that a framework is told of an agent, beside the token."""
    return f"{BASE}/a2a/agents/{agent}"


def headers(token=TOKEN):
    return {"Authorization": f"Bearer {token}"}


class Checks:
    """The checks of one framework."""

    def __init__(self, name, *packages):
        self.name = name
        print(f"{name}: " + ", ".join(f"{package} {version(package)}" for package in packages), flush=True)

    def streamed(self, what, pieces, expected):
        """In more than one piece, which make the whole; how many there are is a matter of time."""
        self.same(what, ("".join(pieces), len(pieces) > 1), (expected, True))

    def same(self, what, seen, expected):
        if seen != expected:
            sys.exit(f"failed: {self.name} {what}: {seen!r} instead of {expected!r}")
        print(f"ok {self.name} JSONRPC {what}", flush=True)
