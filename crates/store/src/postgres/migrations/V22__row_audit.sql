-- Keys, subscriptions and sessions have entries in the audit from now on. The row here says that those which are there already
-- have to be taken into it; then it says until when nodes of the version before may still write some without an entry.
CREATE TABLE unsaid_rows (
    until bigint
);
INSERT INTO unsaid_rows (until) VALUES (NULL);
