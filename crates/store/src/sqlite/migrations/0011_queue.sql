-- A task in the queue waits for whoever asks for it, and no instance runs it by itself (see lease.rs).
ALTER TABLE a2a_tasks ADD COLUMN queued INTEGER NOT NULL DEFAULT 0;
ALTER TABLE a2a_tasks ADD COLUMN from_agent TEXT NOT NULL DEFAULT '';
ALTER TABLE a2a_tasks ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;   -- higher comes first
ALTER TABLE a2a_tasks ADD COLUMN max_attempts INTEGER;                  -- of its own; else its agent's
ALTER TABLE a2a_tasks ADD COLUMN replays TEXT;                          -- the dead letter that it repeats
ALTER TABLE a2a_tasks ADD COLUMN dead INTEGER NOT NULL DEFAULT 0;       -- 1 a dead letter, 2 one that was replayed
ALTER TABLE a2a_tasks ADD COLUMN errors TEXT;                           -- why attempts failed, as JSON

-- What instances run, and what waits for others, by priority.
DROP INDEX a2a_tasks_due;
CREATE INDEX a2a_tasks_due ON a2a_tasks (agent_id, tenant_id, due_at) WHERE due_at IS NOT NULL AND queued = 0;
CREATE INDEX a2a_tasks_queue ON a2a_tasks (agent_id, tenant_id, priority DESC, due_at) WHERE due_at IS NOT NULL AND queued = 1;
CREATE INDEX a2a_tasks_held ON a2a_tasks (agent_id, due_at) WHERE queued = 1 AND owner IS NOT NULL AND due_at IS NOT NULL;
CREATE INDEX a2a_tasks_dead ON a2a_tasks (tenant_id, status_at, task_id) WHERE dead = 1;

DROP VIEW a2a_messages;
CREATE VIEW a2a_messages AS
SELECT
  t.task_id AS message_id,
  t.tenant_id,
  t.from_agent,
  t.agent_id AS to_agent,
  (SELECT json_extract(p.value, '$.text') FROM json_each(CAST(m.body AS TEXT), '$.parts') p
   WHERE json_type(p.value, '$.text') IS NOT NULL LIMIT 1) AS task,
  (SELECT json_extract(p.value, '$.data') FROM json_each(CAST(m.body AS TEXT), '$.parts') p
   WHERE json_type(p.value, '$.data') IS NOT NULL LIMIT 1) AS payload_json,
  t.context_id AS correlation_id,
  CASE WHEN t.dead = 1 THEN 'dlq' ELSE
    CASE t.state WHEN 'submitted' THEN 'pending' WHEN 'working' THEN 'in_progress' WHEN 'completed' THEN 'acked'
      WHEN 'input-required' THEN 'input_required' WHEN 'auth-required' THEN 'auth_required' ELSE t.state END
  END AS status,
  t.attempt - t.releases AS attempts,
  t.max_attempts,
  CASE WHEN t.owner IS NULL THEN t.due_at END AS available_at,
  t.owner AS claimed_by,
  CASE WHEN t.owner IS NOT NULL THEN t.due_at END AS lease_until,
  CASE WHEN t.state = 'completed' THEN
    (SELECT json_extract(CAST(a.body AS TEXT), '$.parts[0].data') FROM a2a_artifacts a
     WHERE a.pos >= (t.pk << 32) AND a.pos < ((t.pk + 1) << 32) AND a.append = 0
       AND json_type(CAST(a.body AS TEXT), '$.parts[0].data') IS NOT NULL ORDER BY a.pos DESC LIMIT 1)
  END AS result_json,
  coalesce(json_extract(t.errors, '$[#-1].error'), t.error_message) AS error,
  m.message_id AS protocol_message_id,
  t.context_id,
  t.task_id,
  (SELECT json_group_array(json(h.said)) FROM (SELECT CAST(body AS TEXT) AS said FROM messages
   WHERE pos >= (t.pk << 32) AND pos < ((t.pk + 1) << 32) ORDER BY pos) h) AS history_json,
  t.created_at,
  t.updated_at
FROM a2a_tasks t JOIN messages m ON m.pos =
  (SELECT min(pos) FROM messages WHERE pos >= (t.pk << 32) AND pos < ((t.pk + 1) << 32));
