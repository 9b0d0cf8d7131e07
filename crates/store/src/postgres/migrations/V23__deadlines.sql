-- Open holds by their deadlines, so that lists in that order are pages of an index. 0 says that there is none. NULL says that
-- nobody has looked yet: the holds that are there already, and those of nodes of an older version, are looked at when a node starts.
ALTER TABLE holds ADD COLUMN expires_at bigint;
CREATE INDEX holds_by_deadline ON holds (tenant, expires_at, no) WHERE NOT closed AND expires_at > 0;
CREATE INDEX holds_without_look ON holds (no) WHERE NOT closed AND expires_at IS NULL;
