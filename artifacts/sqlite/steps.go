package sqlite

import "mcpx/artifacts/sqlite/database"

// steps make the tables.
var steps = database.Steps{{
	`CREATE TABLE artifacts (
		seq        INTEGER PRIMARY KEY AUTOINCREMENT,
		id         TEXT NOT NULL UNIQUE,
		digest     TEXT NOT NULL,
		name       TEXT NOT NULL,
		title      TEXT NOT NULL,
		mime       TEXT NOT NULL,
		size       INTEGER NOT NULL,
		run        TEXT NOT NULL,
		session    TEXT NOT NULL,
		principal  TEXT NOT NULL,
		created_at INTEGER NOT NULL,
		expires_at INTEGER NOT NULL
	)`,
	`CREATE INDEX artifacts_run ON artifacts (run, seq) WHERE run <> ''`,
	`CREATE INDEX artifacts_session ON artifacts (session, seq) WHERE session <> ''`,
	`CREATE INDEX artifacts_principal ON artifacts (principal, seq)`,
	`CREATE INDEX artifacts_expiry ON artifacts (expires_at) WHERE expires_at > 0`,
	`CREATE TABLE blobs (digest TEXT PRIMARY KEY, size INTEGER NOT NULL, refs INTEGER NOT NULL) WITHOUT ROWID`,
	`CREATE TABLE usage (bytes INTEGER NOT NULL)`,
	`INSERT INTO usage (bytes) VALUES (0)`,
}, {
	// A content without a registration is garbage, and is found as such.
	`CREATE INDEX blobs_garbage ON blobs (digest) WHERE refs = 0`,
	// The filters name the value by a parameter, of which SQLite can't tell that
	// it is not '': it would not use an index that leaves '' out.
	`DROP INDEX artifacts_run`,
	`DROP INDEX artifacts_session`,
	`CREATE INDEX artifacts_run ON artifacts (run, seq)`,
	`CREATE INDEX artifacts_session ON artifacts (session, seq)`,
}}
