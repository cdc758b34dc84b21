"""What every remote agent of the checks does with a text, and how it is served: the same for all libraries.

    echo X      gives X back
    stream N    gives N pieces of one artifact, 50 ms apart
    pause S     gives two pieces of one artifact, S seconds apart
    ask         asks which city; the next message of the task is the answer
    slow S      works for S seconds, unless it is canceled
    fail        fails

What stands behind a number is for the checks, who find a turn again by its text.
"""

import asyncio
import json
import os
import socket
import sys
import threading
from collections import namedtuple

QUESTION = "which city?"
REASON = "it is broken"
PAUSE = 0.05

Piece = namedtuple("Piece", "text first last")
Question = namedtuple("Question", "text")
Failure = namedtuple("Failure", "text")


async def play(text, continued):
    """What the agent does in one turn, one by one. A turn that says nothing else at its end has done its work."""
    word, _, rest = text.partition(" ")
    number = rest.split(" ")[0]
    if continued:
        yield Piece(f"city: {text}", True, True)
    elif word == "stream":
        for piece in range(1, int(number) + 1):
            yield Piece(f"piece {piece} of {number}\n", piece == 1, piece == int(number))
            await asyncio.sleep(PAUSE)
    elif word == "pause":
        yield Piece("piece 1 of 2\n", True, False)
        await asyncio.sleep(float(number))
        yield Piece("piece 2 of 2\n", False, True)
    elif word == "ask":
        yield Question(QUESTION)
    elif word == "slow":
        await asyncio.sleep(float(number))
        yield Piece(f"slept {number}", True, True)
    elif word == "fail":
        yield Failure(REASON)
    else:
        yield Piece(rest, True, True)


def spoken(text):
    """What an agent that does nothing but echo says to a text, which some frameworks give it with words of their own before."""
    return text.partition("echo ")[2]


class Turns:
    """The turns that an agent was given, for the checks to look at."""

    def __init__(self):
        self.seen = []
        self.calls = {}

    def called(self, call, message_id):
        """By which call a message comes, which an agent is not told."""
        self.calls[message_id] = call

    def add(self, text, message_id, task_id, context_id):
        call = self.calls.get(message_id)
        self.seen.append({"text": text, "call": call, "taskId": task_id, "contextId": context_id})

    async def shown(self, state_of):
        """Each with the state that its task has in the library's own store."""
        return [{**turn, "state": await state_of(turn["taskId"])} for turn in self.seen]


def listener():
    """A free port that listens from now on, so that nobody is refused who comes early."""
    listening = socket.create_server(("127.0.0.1", 0))
    return listening, listening.getsockname()[1]


def announce(remotes):
    """Says on the standard output where the remotes are: name, binding and URL of each, where its card is unless that is
    beside the URL, and where its turns are shown. The process ends with its standard input from now on, so that no
    server outlives its checks."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    print(json.dumps(remotes), flush=True)


async def serve(apps, remotes):
    """Serves each app at its listener."""
    import uvicorn

    servers = [
        (uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=0)), listening)
        for app, listening in apps
    ]
    announce(remotes)
    await asyncio.gather(*(server.serve(sockets=[listening]) for server, listening in servers))
