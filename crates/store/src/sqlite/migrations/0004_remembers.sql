-- Whether a task's turns are told what was said before in their context.
ALTER TABLE a2a_tasks ADD COLUMN remembers INTEGER NOT NULL DEFAULT 1;
