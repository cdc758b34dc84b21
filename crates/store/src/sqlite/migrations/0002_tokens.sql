-- When a token was last seen; written at most about once a minute for each.
ALTER TABLE tokens ADD COLUMN used_at INTEGER;

CREATE INDEX tokens_of_tenant ON tokens (tenant_id);
