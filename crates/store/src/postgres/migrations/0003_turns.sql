-- What a turn needs to go on (see ops/lease.rs).
ALTER TABLE a2a_tasks
  ADD COLUMN parking smallint NOT NULL DEFAULT 0,    -- 1 it rests, 2 it runs and was woken
  ADD COLUMN kept bigint NOT NULL DEFAULT 0,         -- seq of the event with its agent's state
  ADD COLUMN kept_before bigint NOT NULL DEFAULT 0;  -- the same when the current turn began

-- The event that brought it: what a turn made after it last kept its state can be told apart.
ALTER TABLE a2a_artifacts ADD COLUMN seq bigint NOT NULL DEFAULT 0;
