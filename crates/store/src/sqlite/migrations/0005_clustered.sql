-- Messages and artifacts lie beside those of their own task: the task's number is the upper part of their position, so
-- that finding them needs no index. The lower 32 bits grow with the task's log (see sqlite/tx.rs).
CREATE TABLE messages_by_task (
  pos        INTEGER PRIMARY KEY,
  task       INTEGER NOT NULL,
  message_id TEXT NOT NULL,
  role       TEXT NOT NULL,
  status     TEXT NOT NULL,
  turn       INTEGER NOT NULL,
  body       BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  -- A process of an older version that still has the file open must fail here, and not write into another task.
  CHECK (pos >> 32 = task)
);
-- A message came with at least one event, so these numbers stay below those of messages to come.
INSERT INTO messages_by_task
SELECT (task << 32) + row_number() OVER (PARTITION BY task ORDER BY pos), task, message_id, role, status, turn, body,
       created_at
FROM a2a_messages ORDER BY task, pos;
DROP TABLE a2a_messages;
ALTER TABLE messages_by_task RENAME TO a2a_messages;

CREATE TABLE artifacts_by_task (
  pos         INTEGER PRIMARY KEY,
  task        INTEGER NOT NULL,
  turn        INTEGER NOT NULL,
  artifact_id TEXT NOT NULL,
  append      INTEGER NOT NULL,
  body        BLOB NOT NULL,
  CHECK (pos >> 32 = task)
);
INSERT INTO artifacts_by_task
SELECT (task << 32) + row_number() OVER (PARTITION BY task ORDER BY pos), task, turn, artifact_id, append, body
FROM a2a_artifacts ORDER BY task, pos;
DROP TABLE a2a_artifacts;
ALTER TABLE artifacts_by_task RENAME TO a2a_artifacts;

-- One index for every list: `task_counts` knows which agents and states there are, and a list merges theirs. A rare
-- agent or state is found as fast as a common one.
DROP INDEX a2a_tasks_listed;
CREATE INDEX a2a_tasks_listed ON a2a_tasks (tenant_id, agent_id, state, status_at, task_id) WHERE hidden = 0;
