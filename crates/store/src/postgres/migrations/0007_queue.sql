-- A task in the queue waits for whoever asks for it, and no instance runs it by itself (see lease.rs).
ALTER TABLE a2a_tasks
  ADD COLUMN queued boolean NOT NULL DEFAULT false,
  ADD COLUMN from_agent text NOT NULL DEFAULT '',
  ADD COLUMN priority integer NOT NULL DEFAULT 0,   -- higher comes first
  ADD COLUMN max_attempts integer,                  -- of its own; else its agent's
  ADD COLUMN replays text,                          -- the dead letter that it repeats
  ADD COLUMN dead integer NOT NULL DEFAULT 0,       -- 1 a dead letter, 2 one that was replayed
  ADD COLUMN errors text;                           -- why attempts failed, as JSON

-- What instances run, and what waits for others, by priority.
DROP INDEX a2a_tasks_due;
CREATE INDEX a2a_tasks_due ON a2a_tasks (agent_id, tenant_id, due_at) WHERE due_at IS NOT NULL AND NOT queued;
CREATE INDEX a2a_tasks_queue ON a2a_tasks (agent_id, tenant_id, priority DESC, due_at) WHERE due_at IS NOT NULL AND queued;
CREATE INDEX a2a_tasks_held ON a2a_tasks (agent_id, due_at) WHERE queued AND owner IS NOT NULL AND due_at IS NOT NULL;
CREATE INDEX a2a_tasks_dead ON a2a_tasks (tenant_id, status_at, task_id) WHERE dead = 1;

-- The data that an artifact begins with.
CREATE FUNCTION artifact_data(artifact text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN artifact::json#>>'{parts,0,data}';
EXCEPTION WHEN OTHERS THEN
  RETURN NULL;
END $$;

DROP VIEW a2a_messages;
CREATE VIEW a2a_messages AS
SELECT
  t.task_id::text AS message_id,
  t.tenant_id,
  t.from_agent,
  t.agent_id AS to_agent,
  first_text(convert_from(m.body, 'UTF8')) AS task,
  first_data(convert_from(m.body, 'UTF8')) AS payload_json,
  t.context_id AS correlation_id,
  CASE WHEN t.dead = 1 THEN 'dlq' ELSE
    CASE t.state WHEN 'submitted' THEN 'pending' WHEN 'working' THEN 'in_progress' WHEN 'completed' THEN 'acked'
      WHEN 'input-required' THEN 'input_required' WHEN 'auth-required' THEN 'auth_required' ELSE t.state END
  END AS status,
  t.attempt - t.releases AS attempts,
  t.max_attempts::bigint AS max_attempts,
  CASE WHEN t.owner IS NULL THEN t.due_at END AS available_at,
  t.owner AS claimed_by,
  CASE WHEN t.owner IS NOT NULL THEN t.due_at END AS lease_until,
  CASE WHEN t.state = 'completed' THEN
    (SELECT artifact_data(convert_from(a.body, 'UTF8')) FROM a2a_artifacts a
     WHERE a.task = t.task_id AND NOT a.append AND artifact_data(convert_from(a.body, 'UTF8')) IS NOT NULL
     ORDER BY a.pos DESC LIMIT 1)
  END AS result_json,
  coalesce(t.errors::json->-1->>'error', t.error_message) AS error,
  m.message_id AS protocol_message_id,
  t.context_id,
  t.task_id::text AS task_id,
  (SELECT '[' || string_agg(convert_from(h.body, 'UTF8'), ',' ORDER BY h.pos) || ']' FROM messages h
   WHERE h.task = t.task_id) AS history_json,
  t.created_at,
  t.updated_at
FROM a2a_tasks t CROSS JOIN LATERAL
  (SELECT message_id, body FROM messages WHERE task = t.task_id ORDER BY pos LIMIT 1) m;
