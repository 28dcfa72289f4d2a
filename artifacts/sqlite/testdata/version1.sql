CREATE TABLE artifacts (
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
);
CREATE INDEX artifacts_run ON artifacts (run, seq) WHERE run <> '';
CREATE INDEX artifacts_session ON artifacts (session, seq) WHERE session <> '';
CREATE INDEX artifacts_principal ON artifacts (principal, seq);
CREATE INDEX artifacts_expiry ON artifacts (expires_at) WHERE expires_at > 0;
CREATE TABLE blobs (digest TEXT PRIMARY KEY, size INTEGER NOT NULL, refs INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE usage (bytes INTEGER NOT NULL);
INSERT INTO usage (bytes) VALUES (0);
INSERT INTO artifacts (id, digest, name, title, mime, size, run, session, principal, created_at, expires_at)
	VALUES ('11111111111111111111111111111111', 'abababababababababababababababababababababababababababababababab', 'n.txt', 'n.txt', 'text/plain', 3, 'r', 's', 'p', 1764590400000000, 0);
INSERT INTO artifacts (id, digest, name, title, mime, size, run, session, principal, created_at, expires_at)
	VALUES ('22222222222222222222222222222222', 'abababababababababababababababababababababababababababababababab', 'n.txt', 'n.txt', 'text/plain', 3, 'r', 's', 'p', 1764590400000000, 0);
INSERT INTO blobs (digest, size, refs) VALUES ('abababababababababababababababababababababababababababababababab', 3, 2);
UPDATE usage SET bytes = 3;
