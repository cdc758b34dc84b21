-- What a tenant uses, summed with every write, so that a bound on it needs no scan: its tasks that have not ended, and
-- the bytes of its messages, artifacts and events.
CREATE TABLE tenant_usage (
  tenant_id INTEGER PRIMARY KEY,
  tasks     INTEGER NOT NULL,
  bytes     INTEGER NOT NULL
);
INSERT INTO tenant_usage (tenant_id, tasks, bytes)
SELECT tenant_id,
       sum(state NOT IN ('completed', 'failed', 'canceled', 'rejected')),
       sum((SELECT coalesce(sum(length(body)), 0) FROM a2a_events WHERE task = pk)
         + (SELECT coalesce(sum(length(body)), 0) FROM a2a_messages WHERE task = pk)
         + (SELECT coalesce(sum(length(body)), 0) FROM a2a_artifacts WHERE task = pk))
FROM a2a_tasks GROUP BY tenant_id;
