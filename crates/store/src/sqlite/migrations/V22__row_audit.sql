-- Keys, subscriptions and sessions have entries in the audit from now on. The row here says that those which are there already
-- have to be taken into it; it goes in the transaction that does so.
CREATE TABLE unsaid_rows (
    waiting INTEGER NOT NULL
) STRICT;
INSERT INTO unsaid_rows (waiting) VALUES (1);
