-- Who works on the queue: information only, no job depends on it. Each worker writes its own row, about every ten seconds
-- and soon after something has changed; upkeep removes the rows of workers that have not been seen for a while.
CREATE TABLE IF NOT EXISTS dibs_workers (
    worker          VARCHAR(255) NOT NULL PRIMARY KEY,
    host            VARCHAR(255) NOT NULL,
    pid             BIGINT NOT NULL,
    version         VARCHAR(255) NOT NULL,
    state           VARCHAR(20) NOT NULL,  -- working, or stopping
    queues          LONGTEXT,  -- JSON list, NULL for all of them
    queues_left_out INT NOT NULL DEFAULT 0,  -- names that the list has no room for
    tasks           LONGTEXT NOT NULL,  -- JSON list of the names that it knows
    tasks_left_out  INT NOT NULL DEFAULT 0,
    slots           LONGTEXT NOT NULL,  -- JSON list: kind, size, busy, stuck
    claims          INT NOT NULL DEFAULT 0,  -- jobs that it holds: running, or claimed ahead
    done_rate       DOUBLE NOT NULL DEFAULT 0,  -- a second, over the last minute
    failed_rate     DOUBLE NOT NULL DEFAULT 0,  -- runs, also those that are tried again
    last_error      LONGTEXT,
    last_error_at   DATETIME(6),
    claimed_queue   VARCHAR(200),
    claimed_at      DATETIME(6),
    polls           LONGTEXT,  -- JSON: why polls came back empty, by queue
    detail          LONGTEXT,  -- JSON: what else there is to know
    started_at      DATETIME(6) NOT NULL,
    seen_at         DATETIME(6) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_0900_bin;

UPDATE dibs_meta SET value = '3' WHERE name = 'schema' AND value = '2';
