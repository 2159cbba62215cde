-- Who works on the queue: information only, no job depends on it. Each worker writes its own row, about every ten seconds
-- and soon after something has changed; upkeep removes the rows of workers that have not been seen for a while.
CREATE TABLE dibs_workers (
    worker          TEXT NOT NULL PRIMARY KEY,
    host            TEXT NOT NULL,
    pid             INTEGER NOT NULL,
    version         TEXT NOT NULL,
    state           TEXT NOT NULL,  -- working, or stopping
    queues          TEXT,  -- JSON list, NULL for all of them
    queues_left_out INTEGER NOT NULL DEFAULT 0,  -- names that the list has no room for
    tasks           TEXT NOT NULL,  -- JSON list of the names that it knows
    tasks_left_out  INTEGER NOT NULL DEFAULT 0,
    slots           TEXT NOT NULL,  -- JSON list: kind, size, busy, stuck
    claims          INTEGER NOT NULL DEFAULT 0,  -- jobs that it holds: running, or claimed ahead
    done_rate       REAL NOT NULL DEFAULT 0,  -- a second, over the last minute
    failed_rate     REAL NOT NULL DEFAULT 0,  -- runs, also those that are tried again
    last_error      TEXT,
    last_error_at   TEXT,
    claimed_queue   TEXT,
    claimed_at      TEXT,
    polls           TEXT,  -- JSON: why polls came back empty, by queue
    detail          TEXT,  -- JSON: what else there is to know
    started_at      TEXT NOT NULL,
    seen_at         TEXT NOT NULL
) WITHOUT ROWID;

UPDATE dibs_meta SET value = '3' WHERE name = 'schema' AND value = '2';
