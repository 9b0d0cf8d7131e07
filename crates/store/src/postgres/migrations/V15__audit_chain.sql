-- Each entry of a tenant's audit is tied to the one before it, as the links of a run are: SHA-256 over a label, the hash
-- before, tenant, number, time and text, each part behind its length.
ALTER TABLE audit ADD COLUMN hash bytea NOT NULL DEFAULT '\x';

DO $$
DECLARE
    entry    record;
    previous bytea;
    tenant   text;
BEGIN
    FOR entry IN SELECT a.tenant, a.no, a.at, a.entry FROM audit a ORDER BY a.tenant, a.no LOOP
        IF tenant IS DISTINCT FROM entry.tenant THEN
            tenant := entry.tenant;
            previous := decode(repeat('00', 32), 'hex');
        END IF;
        previous := sha256(
            int8send(17) || convert_to('standfast.audit.1', 'UTF8')
            || int8send(32) || previous
            || int8send(octet_length(convert_to(entry.tenant, 'UTF8'))) || convert_to(entry.tenant, 'UTF8')
            || int8send(8) || int8send(entry.no)
            || int8send(8) || int8send(entry.at)
            || int8send(octet_length(convert_to(entry.entry, 'UTF8'))) || convert_to(entry.entry, 'UTF8'));
        UPDATE audit SET hash = previous WHERE audit.tenant = entry.tenant AND audit.no = entry.no;
    END LOOP;
END $$;
