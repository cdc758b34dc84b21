-- concurrently
-- Lists go by agent and state, so that a rare one is found as fast as a common one: of a tenant, and of a context.
CREATE INDEX CONCURRENTLY a2a_tasks_groups ON a2a_tasks (tenant_id, agent_id, state, status_at, task_id) WHERE hidden = 0;
CREATE INDEX CONCURRENTLY a2a_tasks_in_context ON a2a_tasks (tenant_id, context_id, agent_id, state, status_at, task_id) WHERE hidden = 0;
