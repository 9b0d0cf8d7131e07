-- Whether the contents of a run are gone: erasing says so once it is done. Beside the fold, like the lease.
ALTER TABLE runs ADD COLUMN erased INTEGER NOT NULL DEFAULT 0;

-- What could not be told of a run goes with its contents.
CREATE INDEX dead_letters_by_run ON dead_letters (run);
