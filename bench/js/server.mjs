// The echo agent on the official JavaScript SDK, in memory as it comes: working, one artifact, completed.

import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';

import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } from '@a2a-js/sdk/server/express';
import { TaskState } from '@a2a-js/sdk';
import express from 'express';

const now = () => new Date().toISOString();

/** Says back what it was told. */
class Echo {
  async execute(context, bus) {
    const { taskId, contextId, userMessage } = context;
    const status = (state) => ({ state, message: undefined, timestamp: now() });
    const update = (state) => AgentEvent.statusUpdate({ taskId, contextId, status: status(state), metadata: undefined });
    // The SDK wants a task before anything else is said about it.
    const task = { id: taskId, contextId, status: status(TaskState.TASK_STATE_SUBMITTED), artifacts: [] };
    bus.publish(AgentEvent.task({ ...task, history: [userMessage], metadata: undefined }));
    bus.publish(update(TaskState.TASK_STATE_WORKING));
    const artifact = {
      artifactId: randomUUID(),
      name: '',
      description: '',
      parts: userMessage.parts,
      metadata: undefined,
      extensions: [],
    };
    bus.publish(
      AgentEvent.artifactUpdate({ taskId, contextId, artifact, append: false, lastChunk: true, metadata: undefined }),
    );
    bus.publish(update(TaskState.TASK_STATE_COMPLETED));
    bus.finished();
  }

  async cancelTask() {}
}

const app = express();
// Node sets TCP_NODELAY by itself; it is said here so that nobody has to look it up.
const server = createServer({ noDelay: true }, app);
server.listen(Number(process.argv[2] ?? 0), '127.0.0.1', 1024, () => {
  const origin = `http://127.0.0.1:${server.address().port}`;
  const card = {
    name: 'Echo',
    description: 'Says back what it was told.',
    version: '1.0.0',
    supportedInterfaces: [
      { url: `${origin}/`, protocolBinding: 'JSONRPC', protocolVersion: '1.0', tenant: '' },
      { url: `${origin}/rest`, protocolBinding: 'HTTP+JSON', protocolVersion: '1.0', tenant: '' },
    ],
    provider: undefined,
    capabilities: { streaming: true, pushNotifications: false, extensions: [] },
    securitySchemes: {},
    securityRequirements: [],
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
    skills: [
      {
        id: 'echo',
        name: 'Echo',
        description: 'Says back what it was told.',
        tags: ['echo'],
        examples: [],
        inputModes: [],
        outputModes: [],
        securityRequirements: [],
      },
    ],
    signatures: [],
  };
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Echo());
  const options = { requestHandler, userBuilder: UserBuilder.noAuthentication };
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler }));
  app.use('/rest', restHandler(options));
  app.use('/', jsonRpcHandler(options));
  console.log(`listening on ${origin}`);
});
