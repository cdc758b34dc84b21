-- `a2a_messages` is what a queue shows: one row a task, made of the task and of the message that began it. What was said is in
-- `messages`.
ALTER TABLE a2a_messages RENAME TO messages;
CREATE VIEW a2a_messages AS
SELECT
  t.task_id AS message_id,
  t.tenant_id,
  '' AS from_agent,
  t.agent_id AS to_agent,
  (SELECT json_extract(p.value, '$.text') FROM json_each(CAST(m.body AS TEXT), '$.parts') p
   WHERE json_type(p.value, '$.text') IS NOT NULL LIMIT 1) AS task,
  (SELECT json_extract(p.value, '$.data') FROM json_each(CAST(m.body AS TEXT), '$.parts') p
   WHERE json_type(p.value, '$.data') IS NOT NULL LIMIT 1) AS payload_json,
  t.context_id AS correlation_id,
  CASE t.state WHEN 'submitted' THEN 'pending' WHEN 'working' THEN 'in_progress' WHEN 'completed' THEN 'acked'
    WHEN 'input-required' THEN 'input_required' WHEN 'auth-required' THEN 'auth_required' ELSE t.state END AS status,
  t.attempt AS attempts,
  NULL AS max_attempts,
  CASE WHEN t.owner IS NULL THEN t.due_at END AS available_at,
  t.owner AS claimed_by,
  CASE WHEN t.owner IS NOT NULL THEN t.due_at END AS lease_until,
  NULL AS result_json,
  t.error_message AS error,
  m.message_id AS protocol_message_id,
  t.context_id,
  t.task_id,
  (SELECT json_group_array(json(h.said)) FROM (SELECT CAST(body AS TEXT) AS said FROM messages
   WHERE pos >= (t.pk << 32) AND pos < ((t.pk + 1) << 32) ORDER BY pos) h) AS history_json,
  t.created_at,
  t.updated_at
FROM a2a_tasks t JOIN messages m ON m.pos =
  (SELECT min(pos) FROM messages WHERE pos >= (t.pk << 32) AND pos < ((t.pk + 1) << 32));
