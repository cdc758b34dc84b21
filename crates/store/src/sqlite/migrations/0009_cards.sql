-- Cards that tenants keep of agents that are not served here, in 1.0 JSON.
CREATE TABLE cards (
  tenant_id  INTEGER NOT NULL,
  agent_id   TEXT NOT NULL,
  card       BLOB NOT NULL,
  updated_at INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, agent_id)
) WITHOUT ROWID;
