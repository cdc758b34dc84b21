-- The list of a context, as that of a tenant: one part for each agent and state.
CREATE INDEX a2a_tasks_in_context ON a2a_tasks (tenant_id, context_id, agent_id, state, status_at, task_id) WHERE hidden = 0;
