-- What goes with a task (see retention.rs) is found by it: its idempotency keys, and, of those that were answered by a direct reply and stand
-- in no list, the tasks themselves.
CREATE INDEX idempotency_task ON idempotency (task);
CREATE INDEX a2a_tasks_direct ON a2a_tasks (tenant_id, status_at, task_id) WHERE hidden = 2;
