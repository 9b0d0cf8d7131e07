-- Secrets that the server keeps for later, such as tokens of logins: sealed by the server, of no use without its key.
CREATE TABLE sealed (
    tenant INTEGER NOT NULL,                 -- names.no
    name   TEXT    NOT NULL,
    value  TEXT    NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;
