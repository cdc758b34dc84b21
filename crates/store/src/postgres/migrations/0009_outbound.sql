-- What a task came from (a trace, a chain of delegations), and whether its agent has to tell others that it was canceled.
ALTER TABLE a2a_tasks
  ADD COLUMN origin text,                            -- as JSON
  ADD COLUMN aftermath integer NOT NULL DEFAULT 0;   -- 1 others are to be told of a cancel, 2 now
CREATE INDEX a2a_tasks_aftermath ON a2a_tasks (agent_id, status_at) WHERE aftermath = 2;
