-- Payloads may be sealed, each with the key of its run. Those keys are in a file of their own: this names it, and the key that
-- wraps them, so that a start without them is refused. No row: nothing is sealed.
CREATE TABLE payload_keys (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    ring       BLOB NOT NULL,
    wrapped_by TEXT NOT NULL
) STRICT;
-- A large value that is sealed; then `value` is empty. A sealed link has no salt, its payload is one text within JSON, and its
-- commitment is there; a sealed state is in `packed` and begins with another byte.
ALTER TABLE blobs ADD COLUMN sealed BLOB;
