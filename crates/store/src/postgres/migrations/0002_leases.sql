-- Lease time (see lease.rs): the server's own clock, when the statement began. Everything that compares or computes a
-- `due_at`, an `expires` of a key or an `at` of a commit asks this function, and no instance's clock.
CREATE FUNCTION lease_now() RETURNS bigint LANGUAGE sql STABLE AS $$
  SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint
$$;

-- The same at this very moment, for what may have waited for a lock since then.
CREATE FUNCTION lease_clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

ALTER TABLE a2a_tasks
  ADD COLUMN releases integer NOT NULL DEFAULT 0,        -- attempts that were given back on purpose
  ADD COLUMN interrupted boolean NOT NULL DEFAULT false, -- the attempt before was cut off for certain
  ADD COLUMN overdue boolean NOT NULL DEFAULT false;     -- the lease has run out, and its holder had a last call

-- Claims go by agent and tenant, oldest first.
DROP INDEX a2a_tasks_due;
CREATE INDEX a2a_tasks_due ON a2a_tasks (agent_id, tenant_id, due_at) WHERE due_at IS NOT NULL;
