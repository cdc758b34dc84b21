-- Lease time (see lease.rs): `due_at` of tasks and `expires` of keys are moments of the journal's own clock from here on.
-- It goes on from wall time, so that what is stored already stays what it was.
ALTER TABLE a2a_tasks ADD COLUMN releases INTEGER NOT NULL DEFAULT 0;    -- attempts that were given back on purpose
ALTER TABLE a2a_tasks ADD COLUMN interrupted INTEGER NOT NULL DEFAULT 0; -- the attempt before was cut off for certain
ALTER TABLE a2a_tasks ADD COLUMN overdue INTEGER NOT NULL DEFAULT 0;     -- the lease has run out, and its holder had a last call

-- Claims go by agent and tenant, oldest first.
DROP INDEX a2a_tasks_due;
CREATE INDEX a2a_tasks_due ON a2a_tasks (agent_id, tenant_id, due_at) WHERE due_at IS NOT NULL;

-- Where the journal's clock stands against the machine's (see sqlite/clock.rs).
CREATE TABLE lease_clock (
  one    INTEGER PRIMARY KEY CHECK (one = 1),
  boot   TEXT NOT NULL,
  offset INTEGER NOT NULL,
  seen   INTEGER NOT NULL
);
