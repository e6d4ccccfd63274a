-- What a program of version 2 of the schema made.

CREATE TABLE jobs (
    uid VARCHAR(512) NOT NULL,
    namespace VARCHAR(512) NOT NULL,
    kind VARCHAR(512) NOT NULL,
    name VARCHAR(512) NOT NULL,
    queue VARCHAR(512) NOT NULL,
    service_class VARCHAR(512) NOT NULL,
    user VARCHAR(512) NOT NULL,
    state VARCHAR(512) NOT NULL,
    submitted_at DOUBLE NOT NULL,
    started_at DOUBLE,
    ended_at DOUBLE,
    restarts INTEGER NOT NULL,
    interruptions INTEGER NOT NULL,
    exit_code INTEGER,
    message TEXT NOT NULL,
    PRIMARY KEY (uid)
);

CREATE INDEX ix_jobs_submitted_at ON jobs (submitted_at);

CREATE INDEX ix_jobs_namespace ON jobs (namespace);

CREATE INDEX ix_jobs_ended_at ON jobs (ended_at);

CREATE TABLE runs (
    uid VARCHAR(512) NOT NULL,
    job VARCHAR(512) NOT NULL,
    namespace VARCHAR(512) NOT NULL,
    name VARCHAR(512) NOT NULL,
    queue VARCHAR(512) NOT NULL,
    service_class VARCHAR(512) NOT NULL,
    user VARCHAR(512) NOT NULL,
    node VARCHAR(512) NOT NULL,
    gpus DOUBLE NOT NULL,
    cpus DOUBLE NOT NULL,
    started_at DOUBLE NOT NULL,
    ended_at DOUBLE,
    outcome VARCHAR(512) NOT NULL,
    exit_code INTEGER,
    used DOUBLE DEFAULT '0' NOT NULL,
    measured DOUBLE DEFAULT '0' NOT NULL,
    PRIMARY KEY (uid)
);

CREATE INDEX ix_runs_ended_at ON runs (ended_at);

CREATE INDEX ix_runs_node ON runs (node);

CREATE INDEX ix_runs_job ON runs (job);

CREATE TABLE stays (
    uid VARCHAR(512) NOT NULL,
    node VARCHAR(512) NOT NULL,
    node_uid VARCHAR(512) NOT NULL,
    pool VARCHAR(512) NOT NULL,
    gpus DOUBLE NOT NULL,
    cpus DOUBLE NOT NULL,
    price BIGINT,
    currency VARCHAR(512) NOT NULL,
    kind VARCHAR(512) NOT NULL,
    started_at DOUBLE NOT NULL,
    ended_at DOUBLE,
    PRIMARY KEY (uid)
);

CREATE INDEX ix_stays_started_at ON stays (started_at);

CREATE INDEX ix_stays_node ON stays (node);

CREATE INDEX ix_stays_ended_at ON stays (ended_at);

CREATE TABLE scalers (
    uid VARCHAR(512) NOT NULL,
    namespace VARCHAR(512) NOT NULL,
    name VARCHAR(512) NOT NULL,
    kind VARCHAR(512) NOT NULL,
    target VARCHAR(512) NOT NULL,
    min_replicas INTEGER NOT NULL,
    max_replicas INTEGER NOT NULL,
    started_at DOUBLE NOT NULL,
    ended_at DOUBLE,
    PRIMARY KEY (uid)
);

CREATE INDEX ix_scalers_ended_at ON scalers (ended_at);

CREATE INDEX ix_scalers_started_at ON scalers (started_at);

CREATE TABLE notes (
    name VARCHAR(512) NOT NULL,
    value VARCHAR(512) NOT NULL,
    PRIMARY KEY (name)
);

INSERT INTO notes (name, value) VALUES ('version', '2');
