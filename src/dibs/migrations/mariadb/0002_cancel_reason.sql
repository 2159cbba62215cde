-- Why and by whom a job is to be cancelled, kept from the wish on until its worker has carried it out.
-- A nullable column without a default changes the table's description alone (ALGORITHM=INSTANT, the default).
ALTER TABLE dibs_jobs
    ADD COLUMN IF NOT EXISTS cancel_reason LONGTEXT,
    ADD COLUMN IF NOT EXISTS cancel_requested_by VARCHAR(255);

UPDATE dibs_meta SET value = '2' WHERE name = 'schema' AND value = '1';
