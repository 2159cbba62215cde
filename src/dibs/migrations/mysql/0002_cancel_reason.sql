-- Why and by whom a job is to be cancelled, kept from the wish on until its worker has carried it out.
-- A nullable column without a default changes the table's description alone (ALGORITHM=INSTANT, the default).
-- MySQL knows no ADD COLUMN IF NOT EXISTS, and this must be safe to run again: so it is looked for first.
SET @dibs_step = (
    SELECT IF(count(*) > 0, 'DO 0', 'ALTER TABLE dibs_jobs ADD COLUMN cancel_reason LONGTEXT, ADD COLUMN cancel_requested_by VARCHAR(255)')
    FROM information_schema.columns
    WHERE table_schema = {schema} AND table_name = {jobs} AND column_name = 'cancel_reason'
);

PREPARE dibs_step FROM @dibs_step;

EXECUTE dibs_step;

DEALLOCATE PREPARE dibs_step;

UPDATE dibs_meta SET value = '2' WHERE name = 'schema' AND value = '1';
