-- The journal and its projections. Times are milliseconds since the epoch.

-- A task as it stands. `due_at` is a queue's visibility time: NULL when there is nothing to run, the earliest
-- start of work that waits, the end of the lease of work that runs.
CREATE TABLE a2a_tasks (
  task_id        TEXT PRIMARY KEY,
  pk             INTEGER NOT NULL UNIQUE,
  tenant_id      INTEGER NOT NULL,
  agent_id       TEXT NOT NULL,
  context_id     TEXT NOT NULL DEFAULT '',
  state          TEXT NOT NULL,
  created_at     INTEGER NOT NULL,
  updated_at     INTEGER NOT NULL,
  status_at      INTEGER NOT NULL,
  status_message TEXT,                         -- a Message as JSON
  status_turn    INTEGER NOT NULL DEFAULT 0,   -- the turn that said it
  seq            INTEGER NOT NULL,             -- number of the last event
  hidden         INTEGER NOT NULL DEFAULT 0,   -- 0 visible, 1 undecided, 2 answered by a direct reply
  due_at         INTEGER,
  owner          TEXT,                         -- instance that holds the lease
  generation     INTEGER NOT NULL DEFAULT 0,   -- grows with each lease
  attempt        INTEGER NOT NULL DEFAULT 0,   -- at the current turn
  turn           INTEGER NOT NULL DEFAULT 0,   -- number of the current or last turn
  waiting        INTEGER NOT NULL DEFAULT 0,   -- messages in the inbox
  cancel_mark    INTEGER NOT NULL DEFAULT 0,
  final_message_json TEXT GENERATED ALWAYS AS (
    CASE WHEN state IN ('completed', 'failed', 'canceled', 'rejected') THEN coalesce(status_message, '') ELSE '' END
  ) VIRTUAL,
  error_message TEXT GENERATED ALWAYS AS (
    CASE WHEN state = 'failed' THEN coalesce(json_extract(status_message, '$.parts[0].text'), '') ELSE '' END
  ) VIRTUAL
);
CREATE INDEX a2a_tasks_due ON a2a_tasks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX a2a_tasks_listed ON a2a_tasks (tenant_id, status_at, task_id) WHERE hidden = 0;
CREATE INDEX a2a_tasks_context ON a2a_tasks (tenant_id, context_id, task_id);
CREATE INDEX a2a_tasks_marked ON a2a_tasks (owner) WHERE cancel_mark = 1 AND owner IS NOT NULL;

-- The log. AUTOINCREMENT, so that pruning frees no position for reuse.
CREATE TABLE a2a_events (
  pos  INTEGER PRIMARY KEY AUTOINCREMENT,
  task INTEGER NOT NULL,                       -- a2a_tasks.pk
  seq  INTEGER NOT NULL,
  at   INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  body BLOB NOT NULL
);
CREATE UNIQUE INDEX a2a_events_task ON a2a_events (task, seq);

-- What was said. A caller's message is 'pending' in the inbox, 'in_progress' while its turn runs, then 'acked'.
CREATE TABLE a2a_messages (
  pos        INTEGER PRIMARY KEY AUTOINCREMENT,
  task       INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  role       TEXT NOT NULL,
  status     TEXT NOT NULL,
  turn       INTEGER NOT NULL,
  body       BLOB NOT NULL,
  created_at INTEGER NOT NULL
);
CREATE INDEX a2a_messages_task ON a2a_messages (task);

-- What was made, one row a chunk.
CREATE TABLE a2a_artifacts (
  pos         INTEGER PRIMARY KEY AUTOINCREMENT,
  task        INTEGER NOT NULL,
  turn        INTEGER NOT NULL,
  artifact_id TEXT NOT NULL,
  append      INTEGER NOT NULL,
  body        BLOB NOT NULL
);
CREATE INDEX a2a_artifacts_task ON a2a_artifacts (task);

CREATE TABLE idempotency (
  tenant_id   INTEGER NOT NULL,
  key         BLOB NOT NULL,
  fingerprint BLOB NOT NULL,
  task        INTEGER NOT NULL,
  turn        INTEGER NOT NULL,
  expires     INTEGER,
  PRIMARY KEY (tenant_id, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_expires ON idempotency (expires) WHERE expires IS NOT NULL;

-- How many visible tasks there are of each kind, so that a list's total needs no scan.
CREATE TABLE task_counts (
  tenant_id INTEGER NOT NULL,
  agent_id  TEXT NOT NULL,
  state     TEXT NOT NULL,
  n         INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, agent_id, state)
) WITHOUT ROWID;

CREATE TABLE settings (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE tenants (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  name       TEXT NOT NULL UNIQUE,
  enabled    INTEGER NOT NULL DEFAULT 1,
  created_at INTEGER NOT NULL
);

CREATE TABLE tokens (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant_id  INTEGER NOT NULL,
  hash       BLOB NOT NULL UNIQUE,
  name       TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires    INTEGER,
  revoked_at INTEGER
);

CREATE TABLE audit (
  id     INTEGER PRIMARY KEY AUTOINCREMENT,
  at     INTEGER NOT NULL,
  actor  TEXT NOT NULL,
  action TEXT NOT NULL,
  detail TEXT NOT NULL
);

-- Processes that may hold leases; each keeps a lock on its file while it lives.
CREATE TABLE instances (
  id         TEXT PRIMARY KEY,
  started_at INTEGER NOT NULL
) WITHOUT ROWID;
