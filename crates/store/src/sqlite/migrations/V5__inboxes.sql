-- The runs of an inbox, and what waits for a person in it.
CREATE INDEX runs_by_inbox ON runs (tenant, inbox) WHERE inbox IS NOT NULL;

ALTER TABLE holds ADD COLUMN inbox INTEGER;  -- names.no, of a run in an inbox
UPDATE holds SET inbox = (SELECT runs.inbox FROM runs WHERE runs.no = holds.run) WHERE closed = 0;
CREATE INDEX holds_by_inbox ON holds (tenant, inbox) WHERE closed = 0 AND inbox IS NOT NULL;
