-- The runs of an inbox, and what waits for a person in it. Neither column of the first changes with an append.
CREATE INDEX runs_by_inbox ON runs (tenant, inbox, no) WHERE inbox IS NOT NULL;

ALTER TABLE holds ADD COLUMN inbox text COLLATE "C";
UPDATE holds h SET inbox = r.inbox FROM runs r WHERE r.id = h.run AND r.inbox IS NOT NULL AND NOT h.closed;
CREATE INDEX holds_by_inbox ON holds (tenant, inbox, no) WHERE NOT closed AND inbox IS NOT NULL;
