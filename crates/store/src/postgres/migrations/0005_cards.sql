-- Cards that tenants keep of agents that are not served here, in 1.0 JSON.
CREATE TABLE cards (
  tenant_id  bigint NOT NULL,
  agent_id   text COLLATE "C" NOT NULL,
  card       bytea NOT NULL,
  updated_at bigint NOT NULL,
  PRIMARY KEY (tenant_id, agent_id)
);
