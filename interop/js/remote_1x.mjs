// Servers of the official JavaScript SDK (1.x line): one agent over JSON-RPC, HTTP+JSON and gRPC, each alone on a card.
//
// Usage: remote_1x.mjs. Says where they are on the standard output, and ends with the standard input.

import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';

import * as grpc from '@grpc/grpc-js';
import express from 'express';

import { Role, TaskState } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore, ServerCallContext, UnauthenticatedUser } from '@a2a-js/sdk/server';
import { UserBuilder, agentCardHandler, jsonRpcHandler, restHandler } from '@a2a-js/sdk/server/express';
import { A2AService, grpcService } from '@a2a-js/sdk/server/grpc';

import { announce, listen, noting, play, turnsRoute } from './script.mjs';

const textPart = (text) => ({ content: { $case: 'text', value: text }, metadata: undefined, filename: '', mediaType: '' });

// The agent of script.mjs as the SDK wants it.
class Agent {
  turns = [];
  calls = new Map();
  running = new Map();

  execute = async (context, bus) => {
    const { taskId, contextId, userMessage, task } = context;
    const text = userMessage.parts.map((part) => part.content?.value ?? '').join('');
    this.turns.push({ text, call: this.calls.get(userMessage.messageId), taskId, contextId });
    const stop = new AbortController();
    this.running.set(taskId, stop);
    // The first event of a turn is the task, of a turn that continues one as well.
    const begun = { id: taskId, contextId, artifacts: [], history: [userMessage], metadata: undefined };
    bus.publish(AgentEvent.task({ ...(task ?? begun), status: status(TaskState.TASK_STATE_SUBMITTED) }));
    const say = (state, said) => bus.publish(AgentEvent.statusUpdate({
      taskId, contextId, status: status(state, said, taskId, contextId), metadata: undefined,
    }));
    say(TaskState.TASK_STATE_WORKING);
    try {
      for await (const step of play(text, task !== undefined, stop.signal)) {
        if (step.question) return say(TaskState.TASK_STATE_INPUT_REQUIRED, step.question);
        if (step.failure) return say(TaskState.TASK_STATE_FAILED, step.failure);
        bus.publish(AgentEvent.artifactUpdate({
          taskId,
          contextId,
          artifact: {
            artifactId: 'result', name: '', description: '', parts: [textPart(step.piece)],
            metadata: undefined, extensions: [],
          },
          append: !step.first,
          lastChunk: step.last,
          metadata: undefined,
        }));
      }
      say(TaskState.TASK_STATE_COMPLETED);
    } catch (error) {
      if (!stop.signal.aborted) throw error;
      say(TaskState.TASK_STATE_CANCELED);
    } finally {
      this.running.delete(taskId);
      bus.finished();
    }
  };

  cancelTask = async (taskId) => this.running.get(taskId)?.abort();
}

function status(state, said, taskId = '', contextId = '') {
  const message = said && {
    messageId: randomUUID(), taskId, contextId, role: Role.ROLE_AGENT, parts: [textPart(said)],
    metadata: undefined, extensions: [], referenceTaskIds: [],
  };
  return { state, message, timestamp: new Date().toISOString() };
}

function card(binding, url) {
  return {
    name: `JavaScript 1.x over ${binding}`,
    description: 'An agent of the official JavaScript SDK.',
    version: '1.0.0',
    supportedInterfaces: [{ url, protocolBinding: binding, protocolVersion: '1.0', tenant: '' }],
    provider: undefined,
    capabilities: { streaming: true, pushNotifications: false, extendedAgentCard: false, extensions: [] },
    securitySchemes: {},
    securityRequirements: [],
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
    skills: [{
      id: 'script', name: 'Script', description: 'Does what the text says.', tags: ['test'],
      examples: [], inputModes: [], outputModes: [], securityRequirements: [],
    }],
    signatures: [],
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
  const nobody = new ServerCallContext({ user: new UnauthenticatedUser() });
  app.get('/turns', turnsRoute(agent.turns, async (id) => {
    const task = await store.load(id, nobody);
    return task ? TaskState[task.status.state] : null;
  }));
  server.on('request', app);
  remotes.push({
    name: 'js-1x',
    binding,
    url: binding === 'JSONRPC' ? url : base,
    card: `${base}/.well-known/agent-card.json`,
    turns: `${base}/turns`,
  });
}
announce(remotes);
