// The reference library of the Standard Webhooks verifies what a running server delivers.
//
// Usage: reference.mjs BASE_URL TOKEN. Prints one line per check and stops at the first failure.

import assert from 'node:assert/strict';

import { Webhook } from 'standardwebhooks';

import { Hook } from './hook.mjs';

const [base, token] = process.argv.slice(2).map((value) => value.replace(/\/$/, ''));
const headers = { Authorization: `Bearer ${token}`, 'A2A-Version': '1.0', 'Content-Type': 'application/json' };

const hook = await Hook.listen();
const { secret } = await (await fetch(`${base}/v1/push/secret`, { headers })).json();
const message = { messageId: 'm-1', role: 'ROLE_USER', parts: [{ text: 'hällo' }] };
const configuration = { taskPushNotificationConfig: { url: hook.url('signed') } };
const body = JSON.stringify({ tenant: 'echo', message, configuration });
assert.ok((await fetch(`${base}/a2a/message:send`, { method: 'POST', headers, body })).ok);

const reference = new Webhook(secret);
for (const notice of await hook.until('signed', (last) => last.body.includes('TASK_STATE_COMPLETED'))) {
  assert.deepEqual(reference.verify(notice.body, notice.headers), JSON.parse(notice.body));
  assert.throws(() => reference.verify(`${notice.body} `, notice.headers));
  assert.throws(() => reference.verify(notice.body, { ...notice.headers, 'webhook-id': 'msg_new' }));
}
console.log('ok webhooks node the reference library verifies what is delivered');
hook.close();
