-- Agents that tenants define, each definition as it came, and a number that every change of one of them raises.
CREATE TABLE tenant_agents (
  tenant_id  INTEGER NOT NULL,
  agent_id   TEXT NOT NULL,
  definition BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, agent_id)
) WITHOUT ROWID;
CREATE TABLE agents_revision (
  id       INTEGER PRIMARY KEY CHECK (id = 1),
  revision INTEGER NOT NULL
);
INSERT INTO agents_revision (id, revision) VALUES (1, 0);
-- What the turns of a task have used of models, all attempts together.
ALTER TABLE a2a_tasks ADD COLUMN input_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE a2a_tasks ADD COLUMN output_tokens INTEGER NOT NULL DEFAULT 0;
