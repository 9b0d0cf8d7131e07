-- Decided holds by when they were decided: history pages and charts. The record says it, so appends write nothing more. A
-- record that cannot be read is in no list.
CREATE INDEX holds_by_decision ON holds (tenant, CASE WHEN json_valid(record) THEN json_extract(record, '$.closed_at') END)
    WHERE closed = 1;
