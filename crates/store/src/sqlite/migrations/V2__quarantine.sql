-- Why a run whose log cannot be read was put aside; NULL for every other run. Beside the fold, like the lease.
ALTER TABLE runs ADD COLUMN quarantined TEXT;
