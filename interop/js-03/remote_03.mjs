// Servers of the official JavaScript SDK (0.3 line): one agent over JSON-RPC, HTTP+JSON and gRPC, each alone on a card.
//
// Usage: remote_03.mjs. Says where they are on the standard output, and ends with the standard input.

import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';

import * as grpc from '@grpc/grpc-js';
import express from 'express';

import { DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from '@a2a-js/sdk/server/express';
import { A2AService, grpcService } from '@a2a-js/sdk/server/grpc';

import { announce, listen, noting, play, turnsRoute } from './script.mjs';

const textPart = (text) => ({ kind: 'text', text });

// The agent of script.mjs as the SDK wants it.
class Agent {
  turns = [];
  calls = new Map();
  running = new Map();

  execute = async (context, bus) => {
    const { taskId, contextId, userMessage, task } = context;
    const text = userMessage.parts.map((part) => part.text ?? '').join('');
    this.turns.push({ text, call: this.calls.get(userMessage.messageId), taskId, contextId });
    const stop = new AbortController();
    this.running.set(taskId, stop);
    if (!task) bus.publish({ kind: 'task', id: taskId, contextId, status: status('submitted'), history: [userMessage] });
    const say = (state, said) => bus.publish({
      kind: 'status-update', taskId, contextId, status: status(state, said, taskId, contextId), final: state !== 'working',
    });
    say('working');
    try {
      for await (const step of play(text, task !== undefined, stop.signal)) {
        if (step.question) return say('input-required', step.question);
        if (step.failure) return say('failed', step.failure);
        const artifact = { artifactId: 'result', parts: [textPart(step.piece)] };
        bus.publish({ kind: 'artifact-update', taskId, contextId, artifact, append: !step.first, lastChunk: step.last });
      }
      say('completed');
    } catch (error) {
      if (!stop.signal.aborted) throw error;
      say('canceled');
    } finally {
      this.running.delete(taskId);
      bus.finished();
    }
  };

  cancelTask = async (taskId) => this.running.get(taskId)?.abort();
}

function status(state, said, taskId, contextId) {
  const message = said && { kind: 'message', messageId: randomUUID(), taskId, contextId, role: 'agent', parts: [textPart(said)] };
  return { state, message, timestamp: new Date().toISOString() };
}

function card(binding, url) {
  return {
    name: `JavaScript 0.3 over ${binding}`,
    description: 'An agent of the official JavaScript SDK.',
    version: '1.0.0',
    protocolVersion: '0.3.0',
    url,
    preferredTransport: binding,
    capabilities: { streaming: true },
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
    skills: [{ id: 'script', name: 'Script', description: 'Does what the text says.', tags: ['test'] }],
  };
}

const remotes = [];
for (const binding of ['JSONRPC', 'HTTP+JSON', 'GRPC']) {
  const { server, base } = await listen();
  const agent = new Agent();
  const store = new InMemoryTaskStore();
  const app = express();
  const userBuilder = UserBuilder.noAuthentication;
  let url = binding === 'JSONRPC' ? `${base}/a2a/jsonrpc` : `${base}/a2a/rest`;
  let service;
  if (binding === 'GRPC') {
    service = new grpc.Server();
    const bind = promisify(service.bindAsync.bind(service));
    const port = await bind('127.0.0.1:0', grpc.ServerCredentials.createInsecure());
    url = `127.0.0.1:${port}`;
  }
  const requestHandler = new (noting(DefaultRequestHandler, agent.calls))(card(binding, url), store, agent);
  if (binding === 'JSONRPC') app.use('/a2a/jsonrpc', jsonRpcHandler({ requestHandler, userBuilder }));
  if (binding === 'HTTP+JSON') app.use('/a2a/rest', restHandler({ requestHandler, userBuilder }));
  if (service) service.addService(A2AService, grpcService({ requestHandler, userBuilder }));
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
  app.get('/turns', turnsRoute(agent.turns, async (id) => (await store.load(id))?.status.state ?? null));
  server.on('request', app);
  remotes.push({
    name: 'js-03',
    binding,
    url: binding === 'JSONRPC' ? url : base,
    card: `${base}/.well-known/agent-card.json`,
    turns: `${base}/turns`,
  });
}
announce(remotes);
