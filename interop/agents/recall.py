"""Says what the user has said in this context, this message last."""

import json
import sys

turn = json.load(sys.stdin)
messages = [*turn["context_history"], *turn["history"]]
texts = [part["text"] for one in messages if one["role"] == "ROLE_USER" for part in one["parts"] if "text" in part]
print(" / ".join(texts), end="")
