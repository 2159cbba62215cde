-- Who works on the queue: information only, no job depends on it. Each worker writes its own row, about every ten seconds
-- and soon after something has changed; upkeep removes the rows of workers that have not been seen for a while.
CREATE TABLE dibs_workers (
    worker          text COLLATE "C" PRIMARY KEY,
    host            text NOT NULL,
    pid             bigint NOT NULL,
    version         text NOT NULL,
    state           text NOT NULL,  -- working, or stopping
    queues          json,  -- JSON list, NULL for all of them
    queues_left_out integer NOT NULL DEFAULT 0,  -- names that the list has no room for
    tasks           json NOT NULL,  -- JSON list of the names that it knows
    tasks_left_out  integer NOT NULL DEFAULT 0,
    slots           json NOT NULL,  -- JSON list: kind, size, busy, stuck
    claims          integer NOT NULL DEFAULT 0,  -- jobs that it holds: running, or claimed ahead
    done_rate       double precision NOT NULL DEFAULT 0,  -- a second, over the last minute
    failed_rate     double precision NOT NULL DEFAULT 0,  -- runs, also those that are tried again
    last_error      text,
    last_error_at   timestamptz,
    claimed_queue   text COLLATE "C",
    claimed_at      timestamptz,
    polls           json,  -- JSON: why polls came back empty, by queue
    detail          json,  -- JSON: what else there is to know
    started_at      timestamptz NOT NULL,
    seen_at         timestamptz NOT NULL
);

UPDATE dibs_meta SET value = '3' WHERE name = 'schema' AND value = '2';
