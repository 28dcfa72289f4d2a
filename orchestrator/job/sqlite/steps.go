package sqlite

import "mcpx/artifacts/sqlite/database"

// steps make the tables.
var steps = database.Steps{{
	`CREATE TABLE runs (
		id          TEXT PRIMARY KEY,
		state       TEXT NOT NULL,
		owner       TEXT NOT NULL,
		principal   TEXT NOT NULL,
		session     TEXT NOT NULL,
		task_handle TEXT NOT NULL,
		label       TEXT NOT NULL,
		runtime     TEXT NOT NULL,
		image       TEXT NOT NULL,
		policy      TEXT NOT NULL,
		exit_code   INTEGER,
		signal      TEXT NOT NULL,
		error       BLOB,
		created_at  INTEGER NOT NULL,
		started_at  INTEGER,
		ended_at    INTEGER,
		duration_ms INTEGER NOT NULL,
		log_bytes   INTEGER NOT NULL
	) WITHOUT ROWID`,
	`CREATE INDEX runs_state ON runs (state, id)`,
	`CREATE INDEX runs_ended ON runs (ended_at, id) WHERE ended_at IS NOT NULL`,
	`CREATE INDEX runs_owner ON runs (owner, state)`,
	`CREATE INDEX runs_principal ON runs (principal, id)`,
	`CREATE INDEX runs_session ON runs (session, id) WHERE session <> ''`,
	`CREATE INDEX runs_task ON runs (task_handle, id) WHERE task_handle <> ''`,
}, {
	`CREATE TABLE calls (
		seq            INTEGER PRIMARY KEY AUTOINCREMENT,
		at             INTEGER NOT NULL,
		run_id         TEXT NOT NULL,
		principal      TEXT NOT NULL,
		server         TEXT NOT NULL,
		tool           TEXT NOT NULL,
		args_hash      TEXT NOT NULL,
		duration_ms    INTEGER NOT NULL,
		ok             INTEGER NOT NULL,
		error          TEXT NOT NULL,
		destructive    INTEGER,
		request_bytes  INTEGER NOT NULL,
		response_bytes INTEGER NOT NULL
	)`,
	`CREATE INDEX calls_run ON calls (run_id)`,
	`CREATE INDEX calls_tool ON calls (server, tool, at)`,
}}
