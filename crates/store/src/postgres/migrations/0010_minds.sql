-- Agents that tenants define, each definition as it came, and a number that every change of one of them raises.
CREATE TABLE tenant_agents (
  tenant_id  bigint NOT NULL,
  agent_id   text COLLATE "C" NOT NULL,
  definition bytea NOT NULL,
  created_at bigint NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (tenant_id, agent_id)
);
CREATE TABLE agents_revision (
  id       integer PRIMARY KEY CHECK (id = 1),
  revision bigint NOT NULL
);
INSERT INTO agents_revision (id, revision) VALUES (1, 0);
-- What the turns of a task have used of models, all attempts together.
ALTER TABLE a2a_tasks
  ADD COLUMN input_tokens bigint NOT NULL DEFAULT 0,
  ADD COLUMN output_tokens bigint NOT NULL DEFAULT 0;
