// A receiver of push notifications on this machine: it keeps what comes, for the checks to look at.

import { createServer } from 'node:http';

const PATIENCE_MS = 20_000;

export class Hook {
  #came = new Map();
  #server;

  // Listens on a free port. What is posted to one path is a list of its own.
  static async listen() {
    const hook = new Hook();
    hook.#server = createServer(async (request, response) => {
      const pieces = [];
      for await (const piece of request) pieces.push(piece);
      const notices = hook.#came.get(request.url) ?? [];
      hook.#came.set(request.url, [...notices, { headers: request.headers, body: Buffer.concat(pieces).toString() }]);
      response.writeHead(200).end();
    });
    await new Promise((resolve) => hook.#server.listen(0, '127.0.0.1', resolve));
    return hook;
  }

  url(name) {
    return `http://127.0.0.1:${this.#server.address().port}/${name}`;
  }

  // What came there so far.
  told(name) {
    return this.#came.get(`/${name}`) ?? [];
  }

  // What came there, once the last of it is what is waited for.
  async until(name, isLast) {
    const until = Date.now() + PATIENCE_MS;
    while (Date.now() < until) {
      const told = this.told(name);
      if (told.length > 0 && isLast(told.at(-1))) return told;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`${name} was never told the end: ${JSON.stringify(this.told(name))}`);
  }

  close() {
    this.#server.close();
    this.#server.closeAllConnections();
  }
}
