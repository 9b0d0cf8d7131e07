-- Which runs have, or had, calls whose results come from elsewhere: lists of settled calls go by it.
CREATE INDEX holds_external ON holds (run) WHERE kind = 3;
