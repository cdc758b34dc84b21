-- How many push configurations a task has: one that has none pays nothing for them.
ALTER TABLE a2a_tasks ADD COLUMN pushes INTEGER NOT NULL DEFAULT 0;

-- Who is told of a task's events, and how far that has come (see push.rs). What is told is read from the log.
CREATE TABLE push_configs (
  task       INTEGER NOT NULL,
  config_id  TEXT NOT NULL,
  tenant_id  INTEGER NOT NULL,
  url        TEXT NOT NULL,
  receiver   TEXT NOT NULL,                 -- host and port of the URL
  scheme     TEXT NOT NULL,
  sealed     BLOB NOT NULL,                 -- token and credentials, encrypted
  dialect    INTEGER NOT NULL,              -- 1 for 1.0, 3 for 0.3
  chunks     INTEGER NOT NULL,
  bytes      INTEGER NOT NULL,              -- what all of that takes, about
  created_at INTEGER NOT NULL,
  seq        INTEGER NOT NULL,              -- the last event that was told
  part       INTEGER NOT NULL DEFAULT 0,    -- of its notifications; 0 when all were
  owed       INTEGER NOT NULL,              -- the last event that there may be to tell of
  state      INTEGER NOT NULL DEFAULT 0,    -- 0 active, 1 the receiver is gone, 2 stopped by its dead letters
  due_at     INTEGER,
  owner      TEXT,
  generation INTEGER NOT NULL,              -- begins anywhere: one that is made anew is another one
  attempt    INTEGER NOT NULL DEFAULT 0,
  letters    INTEGER NOT NULL DEFAULT 0,    -- dead letters
  record     TEXT NOT NULL DEFAULT '{}',    -- dead letters and the last attempts, as JSON
  PRIMARY KEY (task, config_id)
) WITHOUT ROWID;
CREATE INDEX push_configs_line ON push_configs (tenant_id, receiver, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX push_configs_due ON push_configs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX push_configs_tenant ON push_configs (tenant_id, task, config_id);
CREATE INDEX push_configs_troubled ON push_configs (tenant_id, task, config_id) WHERE letters > 0 OR state <> 0;
