-- How many push configurations a task has: one that has none pays nothing for them.
ALTER TABLE a2a_tasks ADD COLUMN pushes integer NOT NULL DEFAULT 0;

-- Who is told of a task's events, and how far that has come (see push.rs). What is told is read from the log.
CREATE TABLE push_configs (
  task       uuid NOT NULL,
  tenant_id  bigint NOT NULL,
  created_at bigint NOT NULL,
  seq        bigint NOT NULL,                 -- the last event that was told
  owed       bigint NOT NULL,                 -- the last event that there may be to tell of
  due_at     bigint,
  generation bigint NOT NULL,                 -- begins anywhere: one that is made anew is another one
  bytes      bigint NOT NULL,                 -- what it takes, about
  part       integer NOT NULL DEFAULT 0,      -- of the last event's notifications; 0 when all were told
  attempt    integer NOT NULL DEFAULT 0,
  letters    integer NOT NULL DEFAULT 0,      -- dead letters
  dialect    smallint NOT NULL,               -- 1 for 1.0, 3 for 0.3
  state      smallint NOT NULL DEFAULT 0,     -- 0 active, 1 the receiver is gone, 2 stopped by its dead letters
  chunks     boolean NOT NULL,
  config_id  text COLLATE "C" NOT NULL,
  receiver   text COLLATE "C" NOT NULL,       -- host and port of the URL
  owner      text COLLATE "C",
  scheme     text NOT NULL,
  url        text NOT NULL,
  sealed     bytea NOT NULL,                  -- token and credentials, encrypted
  record     text NOT NULL DEFAULT '{}',      -- dead letters and the last attempts, as JSON
  PRIMARY KEY (task, config_id)
) WITH (fillfactor = 70);
CREATE INDEX push_configs_line ON push_configs (tenant_id, receiver, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX push_configs_due ON push_configs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX push_configs_tenant ON push_configs (tenant_id, task, config_id);
CREATE INDEX push_configs_troubled ON push_configs (tenant_id, task, config_id) WHERE letters > 0 OR state <> 0;
