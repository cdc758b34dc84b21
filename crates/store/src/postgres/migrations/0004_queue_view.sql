-- `a2a_messages` is what a queue shows: one row a task, made of the task and of the message that began it. What was said is in
-- `messages`.
ALTER TABLE a2a_messages RENAME TO messages;
ALTER INDEX a2a_messages_task RENAME TO messages_task;

-- The first data part of a message.
CREATE FUNCTION first_data(message text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN (SELECT part->>'data' FROM json_array_elements(message::json->'parts') part WHERE part->'data' IS NOT NULL LIMIT 1);
EXCEPTION WHEN OTHERS THEN
  RETURN NULL;
END $$;

CREATE VIEW a2a_messages AS
SELECT
  t.task_id::text AS message_id,
  t.tenant_id,
  '' AS from_agent,
  t.agent_id AS to_agent,
  first_text(convert_from(m.body, 'UTF8')) AS task,
  first_data(convert_from(m.body, 'UTF8')) AS payload_json,
  t.context_id AS correlation_id,
  CASE t.state WHEN 'submitted' THEN 'pending' WHEN 'working' THEN 'in_progress' WHEN 'completed' THEN 'acked'
    WHEN 'input-required' THEN 'input_required' WHEN 'auth-required' THEN 'auth_required' ELSE t.state END AS status,
  t.attempt AS attempts,
  NULL::bigint AS max_attempts,
  CASE WHEN t.owner IS NULL THEN t.due_at END AS available_at,
  t.owner AS claimed_by,
  CASE WHEN t.owner IS NOT NULL THEN t.due_at END AS lease_until,
  NULL::text AS result_json,
  t.error_message AS error,
  m.message_id AS protocol_message_id,
  t.context_id,
  t.task_id::text AS task_id,
  (SELECT '[' || string_agg(convert_from(h.body, 'UTF8'), ',' ORDER BY h.pos) || ']' FROM messages h
   WHERE h.task = t.task_id) AS history_json,
  t.created_at,
  t.updated_at
FROM a2a_tasks t CROSS JOIN LATERAL
  (SELECT message_id, body FROM messages WHERE task = t.task_id ORDER BY pos LIMIT 1) m;
