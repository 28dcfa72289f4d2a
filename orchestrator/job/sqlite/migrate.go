package sqlite

import (
	"fmt"

	"gorm.io/gorm"
)

// steps bring the tables from one version to the next. A step that has been
// released is never changed; a new one is added at the end.
var steps = [][]string{{
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
	`CREATE INDEX runs_owner ON runs (owner, state)`,
	`CREATE INDEX runs_principal ON runs (principal, id)`,
	`CREATE INDEX runs_session ON runs (session, id) WHERE session <> ''`,
	`CREATE INDEX runs_task ON runs (task_handle, id) WHERE task_handle <> ''`,
}}

// migrate applies the steps that the file lacks, each in a transaction of its
// own with the version (PRAGMA user_version) that it leads to.
func migrate(db *gorm.DB) error {
	for version := range steps {
		err := db.Transaction(func(tx *gorm.DB) error {
			var have int
			if err := tx.Raw("PRAGMA user_version").Scan(&have).Error; err != nil || have > version {
				return err
			}
			for _, statement := range steps[version] { // one by one: a prepared statement is only ever one
				if err := tx.Exec(statement).Error; err != nil {
					return err
				}
			}
			return tx.Exec(fmt.Sprintf("PRAGMA user_version = %d", version+1)).Error
		})
		if err != nil {
			return fmt.Errorf("step %d: %w", version+1, err)
		}
	}
	return refuseNewer(db)
}

// refuseNewer keeps an older program from a file that it does not understand.
func refuseNewer(db *gorm.DB) error {
	var have int
	if err := db.Raw("PRAGMA user_version").Scan(&have).Error; err != nil {
		return err
	}
	if have > len(steps) {
		return fmt.Errorf("it is of version %d, and this program knows %d: use a newer mcpx", have, len(steps))
	}
	return nil
}
