-- Why and by whom a job is to be cancelled, kept from the wish on until its worker has carried it out.
-- A nullable column without a default changes the catalogue alone, however long the table is.
ALTER TABLE dibs_jobs ADD COLUMN cancel_reason text, ADD COLUMN cancel_requested_by text;

UPDATE dibs_meta SET value = '2' WHERE name = 'schema' AND value = '1';
