-- How far a token reaches: its scopes as bits (read 1, send 2, cancel 4, admin 8), and the agents that it is bound to, with a space between
-- two of them; none is all. Tokens of before reach as far as they did.
ALTER TABLE tokens ADD COLUMN scopes INTEGER NOT NULL DEFAULT 15;
ALTER TABLE tokens ADD COLUMN agents TEXT NOT NULL DEFAULT '';
-- The tokens of administrators, beside the one that is a setting.
CREATE TABLE admin_tokens (
  id         INTEGER PRIMARY KEY,
  hash       BLOB NOT NULL UNIQUE,
  name       TEXT NOT NULL UNIQUE,
  created_at INTEGER NOT NULL,
  expires    INTEGER,
  revoked_at INTEGER
);
-- A number that every change of who may call raises.
CREATE TABLE credentials_revision (
  id       INTEGER PRIMARY KEY CHECK (id = 1),
  revision INTEGER NOT NULL
);
INSERT INTO credentials_revision (id, revision) VALUES (1, 0);
