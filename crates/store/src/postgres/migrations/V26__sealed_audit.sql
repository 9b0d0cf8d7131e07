-- Sealed documents (standing approvals, logins, browser sessions, rights of tokens) have entries in the audit from now on. The row
-- here says that those which are there already have to be taken into it, and only those: the other rows have their entries.
ALTER TABLE unsaid_rows ADD COLUMN kind text;
INSERT INTO unsaid_rows (until, kind) VALUES (NULL, 'row.sealed');
