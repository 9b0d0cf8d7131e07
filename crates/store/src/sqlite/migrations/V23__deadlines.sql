-- Open holds by their deadlines, so that lists in that order are pages of an index. 0 says that there is none. NULL says that
-- nobody has looked yet: the holds that are there already are looked at when the file is opened.
ALTER TABLE holds ADD COLUMN expires_at INTEGER;
CREATE INDEX holds_by_deadline ON holds (tenant, expires_at) WHERE closed = 0 AND expires_at > 0;
CREATE INDEX holds_without_look ON holds (no) WHERE closed = 0 AND expires_at IS NULL;
