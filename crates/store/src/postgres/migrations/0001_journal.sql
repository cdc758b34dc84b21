-- The journal and its projections. Times are milliseconds since the epoch. Text that is compared has the collation "C":
-- bytes decide, as in SQLite, whatever the database's locale.

-- The text of a message's first part. JSON can say what text cannot hold (an escaped NUL, half of a surrogate pair) and
-- nest deeper than the server goes: such a message has no text here, and is stored all the same.
CREATE FUNCTION first_text(message text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN coalesce(message::json #>> '{parts,0,text}', '');
EXCEPTION WHEN OTHERS THEN
  RETURN '';
END $$;

-- A task as it stands. `due_at` is a queue's visibility time: NULL when there is nothing to run, the earliest
-- start of work that waits, the end of the lease of work that runs. Room is left on each page, so that what a running
-- turn changes (`seq`, `updated_at`, neither indexed) stays on it and touches no index.
CREATE TABLE a2a_tasks (
  task_id        uuid PRIMARY KEY,
  tenant_id      bigint NOT NULL,
  created_at     bigint NOT NULL,
  updated_at     bigint NOT NULL,
  status_at      bigint NOT NULL,
  seq            bigint NOT NULL,              -- number of the last event
  due_at         bigint,
  generation     bigint NOT NULL DEFAULT 0,    -- grows with each lease
  status_turn    integer NOT NULL DEFAULT 0,   -- the turn that said the status message
  attempt        integer NOT NULL DEFAULT 0,   -- at the current turn
  turn           integer NOT NULL DEFAULT 0,   -- number of the current or last turn
  waiting        integer NOT NULL DEFAULT 0,   -- messages in the inbox
  hidden         smallint NOT NULL DEFAULT 0,  -- 0 visible, 1 undecided, 2 answered by a direct reply
  cancel_mark    boolean NOT NULL DEFAULT false,
  remembers      boolean NOT NULL DEFAULT true, -- its turns are told what was said before in their context
  agent_id       text COLLATE "C" NOT NULL,
  context_id     text COLLATE "C" NOT NULL DEFAULT '',
  state          text COLLATE "C" NOT NULL,
  owner          text COLLATE "C",             -- instance that holds the lease
  status_message text,                         -- a Message as JSON
  final_message_json text GENERATED ALWAYS AS (
    CASE WHEN state IN ('completed', 'failed', 'canceled', 'rejected') THEN coalesce(status_message, '') ELSE '' END
  ) STORED,
  error_message text GENERATED ALWAYS AS (
    CASE WHEN state = 'failed' THEN first_text(status_message) ELSE '' END
  ) STORED
) WITH (fillfactor = 80);
CREATE INDEX a2a_tasks_due ON a2a_tasks (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX a2a_tasks_listed ON a2a_tasks (tenant_id, status_at, task_id) WHERE hidden = 0;
CREATE INDEX a2a_tasks_context ON a2a_tasks (tenant_id, context_id, task_id);
CREATE INDEX a2a_tasks_marked ON a2a_tasks (owner) WHERE cancel_mark AND owner IS NOT NULL;

-- The log. A position is taken before its transaction commits, so positions become visible out of order; who tails
-- the whole log goes by (xid, pos) and stops where transactions may still be running.
CREATE TABLE a2a_events (
  task uuid NOT NULL,
  seq  bigint NOT NULL,
  at   bigint NOT NULL,
  pos  bigint GENERATED ALWAYS AS IDENTITY,
  xid  xid8 NOT NULL DEFAULT pg_current_xact_id(),
  kind smallint NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (task, seq)
);
CREATE INDEX a2a_events_log ON a2a_events (xid, pos);

-- What was said. A caller's message is 'pending' in the inbox, 'in_progress' while its turn runs, then 'acked'.
CREATE TABLE a2a_messages (
  pos        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task       uuid NOT NULL,
  created_at bigint NOT NULL,
  turn       integer NOT NULL,
  role       text COLLATE "C" NOT NULL,
  status     text COLLATE "C" NOT NULL,
  message_id text COLLATE "C" NOT NULL,
  body       bytea NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX a2a_messages_task ON a2a_messages (task, pos);

-- What was made, one row a chunk.
CREATE TABLE a2a_artifacts (
  pos         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  task        uuid NOT NULL,
  turn        integer NOT NULL,
  append      boolean NOT NULL,
  artifact_id text COLLATE "C" NOT NULL,
  body        bytea NOT NULL
);
CREATE INDEX a2a_artifacts_task ON a2a_artifacts (task, pos);

CREATE TABLE idempotency (
  tenant_id   bigint NOT NULL,
  key         bytea NOT NULL,
  fingerprint bytea NOT NULL,
  task        uuid NOT NULL,
  turn        integer NOT NULL,
  expires     bigint,
  PRIMARY KEY (tenant_id, key)
);
CREATE INDEX idempotency_expires ON idempotency (expires) WHERE expires IS NOT NULL;

-- How many visible tasks there are of each kind, so that a list's total needs no scan. Each instance adds to its own
-- shard: a row that all of them change would have all of them wait for each other's commits.
CREATE TABLE task_counts (
  tenant_id bigint NOT NULL,
  shard     smallint NOT NULL,
  agent_id  text COLLATE "C" NOT NULL,
  state     text COLLATE "C" NOT NULL,
  n         bigint NOT NULL,
  PRIMARY KEY (tenant_id, agent_id, state, shard)
) WITH (fillfactor = 50);

-- What a tenant uses: its tasks that have not ended, and the bytes of its messages, artifacts and events; by shard too.
CREATE TABLE tenant_usage (
  tenant_id bigint NOT NULL,
  tasks     bigint NOT NULL,
  bytes     bigint NOT NULL,
  shard     smallint NOT NULL,
  PRIMARY KEY (tenant_id, shard)
) WITH (fillfactor = 50);

-- One row for each committed batch, so that a commit whose answer was lost can be looked up.
CREATE TABLE commits (
  id uuid PRIMARY KEY,
  at bigint NOT NULL
);
CREATE INDEX commits_at ON commits (at);

CREATE TABLE settings (
  name  text COLLATE "C" PRIMARY KEY,
  value bytea NOT NULL
);

CREATE TABLE tenants (
  id         bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  name       text COLLATE "C" NOT NULL UNIQUE,
  enabled    boolean NOT NULL DEFAULT true,
  created_at bigint NOT NULL
);

CREATE TABLE tokens (
  id         bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  tenant_id  bigint NOT NULL,
  hash       bytea NOT NULL UNIQUE,
  name       text COLLATE "C" NOT NULL,
  created_at bigint NOT NULL,
  expires    bigint,
  revoked_at bigint,
  used_at    bigint                            -- when it was last seen, to the minute or so
);
CREATE INDEX tokens_of_tenant ON tokens (tenant_id);

CREATE TABLE audit (
  id     bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  at     bigint NOT NULL,
  actor  text COLLATE "C" NOT NULL,
  action text COLLATE "C" NOT NULL,
  detail text NOT NULL
);

-- Processes that may hold leases; each holds the session's advisory lock `lock_key` while it lives.
CREATE TABLE instances (
  id         text COLLATE "C" PRIMARY KEY,
  lock_key   bigint NOT NULL,
  started_at bigint NOT NULL
);
