-- Why a run whose log cannot be read was put aside; NULL for every other run. Beside the fold, like the lease.
ALTER TABLE runs ADD COLUMN quarantined text;

-- Order of beginning of conversations: the number of the run that began each.
ALTER TABLE sessions ADD COLUMN no bigint NOT NULL DEFAULT 0;
UPDATE sessions s SET no = coalesce(
    (SELECT min(r.no) FROM runs r WHERE r.tenant = s.tenant AND r.agent = s.agent AND r.session = s.session), 0);
ALTER TABLE sessions ALTER COLUMN no DROP DEFAULT;
CREATE INDEX sessions_by_no ON sessions (tenant, no);
