-- Decided holds by when they were decided: history pages and charts. The record says it, so appends write nothing more. Quotes
-- inside a text are escaped, so that no text can look like the member; a record without it is in no list.
CREATE INDEX holds_by_decision ON holds (tenant, (substring(record from '"closed_at":(\d{1,18})')::bigint), no)
    WHERE closed;
