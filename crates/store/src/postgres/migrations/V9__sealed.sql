-- Secrets that the server keeps for later, such as tokens of logins: sealed by the server, of no use without its key.
CREATE TABLE sealed (
    tenant text COLLATE "C" NOT NULL,
    name   text COLLATE "C" NOT NULL,
    value  text NOT NULL,
    PRIMARY KEY (tenant, name)
);
