-- What a turn needs to go on (see ops/lease.rs).
ALTER TABLE a2a_tasks ADD COLUMN parking INTEGER NOT NULL DEFAULT 0;     -- 1 it rests, 2 it runs and was woken
ALTER TABLE a2a_tasks ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;        -- seq of the event with its agent's state
ALTER TABLE a2a_tasks ADD COLUMN kept_before INTEGER NOT NULL DEFAULT 0; -- the same when the current turn began
