"""A receiver of push notifications on this machine: it keeps what comes, for the checks to look at."""

import asyncio
import threading
import time
from collections import namedtuple
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATIENCE = 20

Notice = namedtuple("Notice", "headers body")


class Hook:
    """Listens on a free port. What is posted to one path is a list of its own."""

    def __init__(self):
        came = self.came = {}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                came.setdefault(self.path, []).append(Notice(headers, body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, name):
        return f"http://127.0.0.1:{self.server.server_address[1]}/{name}"

    def told(self, name):
        """What came there so far."""
        return list(self.came.get(f"/{name}", []))

    async def until(self, name, is_last):
        """What came there, once the last of it is what is waited for."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            told = self.told(name)
            if told and is_last(told[-1]):
                return told
            await asyncio.sleep(0.02)
        raise AssertionError(f"{name} was never told the end: {self.told(name)}")
