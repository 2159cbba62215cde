-- The queue. Anyone may SELECT from it; only dibs should write to it.
--
-- Times are text in UTC, 'YYYY-MM-DD HH:MM:SS.SSS': of one width, so that their order is that of time. Columns are
-- declared TEXT, INTEGER and REAL alone: drivers convert what is declared as a date, a timestamp or JSON.
CREATE TABLE dibs_jobs (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT, -- an id is not given out again, not even after a delete
    queue               TEXT NOT NULL,
    task                TEXT NOT NULL,
    payload             TEXT NOT NULL,
    task_key            TEXT,
    priority            INTEGER NOT NULL DEFAULT 0,
    status              TEXT NOT NULL DEFAULT 'ready'
                        CHECK (status IN ('ready', 'running', 'done', 'failed', 'cancelled')),
    run_at              TEXT NOT NULL,
    attempts            INTEGER NOT NULL DEFAULT 0,
    max_attempts        INTEGER NOT NULL DEFAULT 12,
    crashes             INTEGER NOT NULL DEFAULT 0,
    releases            INTEGER NOT NULL DEFAULT 0,
    claims              INTEGER NOT NULL DEFAULT 0,
    lease_owner         TEXT,
    lease_until         TEXT,
    lease               REAL,
    created_at          TEXT NOT NULL,
    started_at          TEXT,
    finished_at         TEXT,
    expires_at          TEXT,
    retention           REAL,
    key_until           TEXT,
    result              TEXT,
    error               TEXT,
    errors              TEXT,
    meta                TEXT,
    cancel_requested_at TEXT,
    progress            TEXT,
    checkpoint          TEXT
);

-- A lane is a range of this index: claims read it in its own order and never sort. Its entries end in the id, as in
-- every index of SQLite's, so the order within one moment is that of the ids.
CREATE INDEX dibs_jobs_ready ON dibs_jobs (queue, priority, run_at) WHERE status = 'ready';

-- Renewing a lease touches no indexed column.
CREATE INDEX dibs_jobs_running ON dibs_jobs (id) WHERE status = 'running';

CREATE INDEX dibs_jobs_finished ON dibs_jobs (expires_at) WHERE expires_at IS NOT NULL;

-- Who holds an idempotency key. Apart from the jobs, so that a duplicate never touches a job's row.
CREATE TABLE dibs_keys (
    task     TEXT NOT NULL,
    task_key TEXT NOT NULL,
    job_id   INTEGER NOT NULL,
    PRIMARY KEY (task, task_key)
) WITHOUT ROWID;

CREATE INDEX dibs_keys_job ON dibs_keys (job_id);

-- Where a key could not be let go at once it stands here, and upkeep tries again. With one writer at a time it
-- always can: the table is there because upkeep is the same on every database.
CREATE TABLE dibs_loose_keys (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    task     TEXT NOT NULL,
    task_key TEXT NOT NULL,
    job_id   INTEGER NOT NULL
);

-- Enqueues refused as duplicates: appended one by one, folded by upkeep into one row a job.
CREATE TABLE dibs_duplicates (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    job_id     INTEGER NOT NULL,
    times      INTEGER NOT NULL DEFAULT 1,
    created_at TEXT NOT NULL
);

CREATE INDEX dibs_duplicates_job ON dibs_duplicates (job_id);

CREATE TABLE dibs_queues (
    queue     TEXT NOT NULL PRIMARY KEY,
    paused_at TEXT,
    paused_by TEXT
) WITHOUT ROWID;

-- What one worker does for all. Whoever moves next_at forward does it; there is no leader.
CREATE TABLE dibs_chores (
    chore   TEXT NOT NULL PRIMARY KEY,
    next_at TEXT NOT NULL
) WITHOUT ROWID;

INSERT INTO dibs_chores (chore, next_at)
VALUES ('expire', '2000-01-01 00:00:00.000'),
       ('prune', '2000-01-01 00:00:00.000'),
       ('fold', '2000-01-01 00:00:00.000');

-- schema: the number of the newest migration here. oldest_code: the lowest schema number that a program
-- may have been written for and still work on these tables.
CREATE TABLE dibs_meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

INSERT INTO dibs_meta (name, value) VALUES ('schema', '1'), ('oldest_code', '1');
