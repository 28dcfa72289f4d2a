// Package database opens the SQLite files of mcpx, which several processes may
// share, and brings their tables up to date.
package database

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

// DB is a file's two pools: writes go through one connection, reads through a
// few. SQLite has one writer, and several would only wait for each other.
type DB struct {
	Write *gorm.DB
	Read  *gorm.DB
}

// readers is how many listings can go on at once.
const readers = 4

// Steps bring the tables from one version to the next, statement by statement
// (a prepared statement is only ever one). A step that has been released is
// never changed; a new one is added at the end.
type Steps [][]string

// Open opens the file, makes it if it is missing, and applies the steps that it lacks.
func Open(path string, steps Steps) (*DB, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	db := &DB{}
	var err error
	if db.Write, err = connect(path, 1); err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	if err = steps.apply(db.Write); err == nil {
		db.Read, err = connect(path, readers)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("database %s: %w", path, err), db.Close())
	}
	return db, nil
}

// connect sets what keeps several writers from failing each other: a write
// transaction takes its lock when it begins (txlock), and waits for it (busy_timeout).
func connect(path string, connections int) (*gorm.DB, error) {
	dsn := "file:" + path + "?_journal_mode=WAL&_busy_timeout=5000&_synchronous=NORMAL&_foreign_keys=on&_txlock=immediate"
	db, err := gorm.Open(sqlite.Open(dsn), &gorm.Config{
		SkipDefaultTransaction: true, PrepareStmt: true, Logger: logger.Discard, TranslateError: true,
	})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(connections)
	pool.SetMaxIdleConns(connections)
	return db, nil
}

// Close closes both pools.
func (db *DB) Close() error {
	var failed []error
	for _, g := range []*gorm.DB{db.Write, db.Read} {
		if g == nil {
			continue
		}
		pool, err := g.DB()
		if err == nil {
			err = pool.Close()
		}
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// apply runs each step in one transaction with the version (PRAGMA
// user_version) that it leads to. A file of a newer program is refused.
func (s Steps) apply(db *gorm.DB) error {
	for version, statements := range s {
		err := db.Transaction(func(tx *gorm.DB) error {
			if have, err := versionOf(tx); err != nil || have > version {
				return err
			}
			for _, statement := range statements {
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
	have, err := versionOf(db)
	if err == nil && have > len(s) {
		err = fmt.Errorf("it is of version %d, and this program knows %d: use a newer mcpx", have, len(s))
	}
	return err
}

func versionOf(db *gorm.DB) (have int, err error) {
	err = db.Raw("PRAGMA user_version").Scan(&have).Error
	return have, err
}
