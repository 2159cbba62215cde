-- MariaDB commits at every one of these statements, so each is safe to run again after a migration that broke off.
-- Text that is compared (names, keys) compares byte by byte and without padding.

-- The queue. Anyone may SELECT from it; only dibs should write to it.
CREATE TABLE IF NOT EXISTS dibs_jobs (
    id                  BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    queue               VARCHAR(200) NOT NULL,
    task                VARCHAR(255) NOT NULL,
    -- Text; here the type JSON is text with a check, and checked it is already.
    payload             LONGTEXT NOT NULL,
    task_key            VARCHAR(255),
    priority            SMALLINT NOT NULL DEFAULT 0,
    status              VARCHAR(10) NOT NULL DEFAULT 'ready'
                        CHECK (status IN ('ready', 'running', 'done', 'failed', 'cancelled')),
    run_at              DATETIME(6) NOT NULL,
    attempts            INT NOT NULL DEFAULT 0,
    max_attempts        INT NOT NULL DEFAULT 12,
    crashes             INT NOT NULL DEFAULT 0,
    releases            INT NOT NULL DEFAULT 0,
    claims              BIGINT NOT NULL DEFAULT 0,
    lease_owner         VARCHAR(255),
    lease_until         DATETIME(6),
    lease               DOUBLE,
    created_at          DATETIME(6) NOT NULL,
    started_at          DATETIME(6),
    finished_at         DATETIME(6),
    expires_at          DATETIME(6),
    retention           DOUBLE,
    key_until           VARCHAR(20),
    result              LONGTEXT,
    error               LONGTEXT,
    errors              LONGTEXT,
    meta                LONGTEXT,
    cancel_requested_at DATETIME(6),
    progress            LONGTEXT,
    checkpoint          LONGTEXT,
    -- A lane is a range of this index: claims read it in its own order and never sort.
    INDEX dibs_jobs_ready (status, queue, priority, run_at, id),
    INDEX dibs_jobs_finished (expires_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- Who holds an idempotency key. Apart from the jobs, so that a duplicate never touches a job's row.
CREATE TABLE IF NOT EXISTS dibs_keys (
    task     VARCHAR(255) NOT NULL,
    task_key VARCHAR(255) NOT NULL,
    job_id   BIGINT NOT NULL,
    PRIMARY KEY (task, task_key),
    INDEX dibs_keys_job (job_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- Keys that could not be let go at once, because somebody's transaction held them; upkeep tries again.
CREATE TABLE IF NOT EXISTS dibs_loose_keys (
    id       BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    task     VARCHAR(255) NOT NULL,
    task_key VARCHAR(255) NOT NULL,
    job_id   BIGINT NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- Enqueues refused as duplicates: appended one by one, folded by upkeep into one row a job.
CREATE TABLE IF NOT EXISTS dibs_duplicates (
    id         BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    job_id     BIGINT NOT NULL,
    times      BIGINT NOT NULL DEFAULT 1,
    created_at DATETIME(6) NOT NULL,
    INDEX dibs_duplicates_job (job_id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

CREATE TABLE IF NOT EXISTS dibs_queues (
    queue     VARCHAR(200) NOT NULL PRIMARY KEY,
    paused_at DATETIME(6),
    paused_by VARCHAR(255)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

-- What one worker does for all. Whoever moves next_at forward does it; there is no leader.
CREATE TABLE IF NOT EXISTS dibs_chores (
    chore   VARCHAR(64) NOT NULL PRIMARY KEY,
    next_at DATETIME(6) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

INSERT IGNORE INTO dibs_chores (chore, next_at)
VALUES ('expire', '2000-01-01'), ('prune', '2000-01-01'), ('fold', '2000-01-01');

-- schema: the number of the newest migration here. oldest_code: the lowest schema number that a program
-- may have been written for and still work on these tables.
CREATE TABLE IF NOT EXISTS dibs_meta (
    name  VARCHAR(64) NOT NULL PRIMARY KEY,
    value VARCHAR(255) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_nopad_bin;

INSERT IGNORE INTO dibs_meta (name, value) VALUES ('schema', '1'), ('oldest_code', '1');
