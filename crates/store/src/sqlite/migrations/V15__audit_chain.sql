-- Each entry of a tenant's audit is tied to the one before it, as the links of a run are. Entries of before get their
-- hash directly after this, by the program: see schema.rs.
ALTER TABLE audit ADD COLUMN hash BLOB NOT NULL DEFAULT x'';
