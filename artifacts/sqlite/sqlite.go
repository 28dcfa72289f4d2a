// Package sqlite is the artifact index in a SQLite file, which several
// processes may share.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/mattn/go-sqlite3"
	"gorm.io/gorm"

	"mcpx/artifacts"
	"mcpx/artifacts/sqlite/database"
)

// Index implements artifacts.Index.
type Index struct{ db *database.DB }

var _ artifacts.Index = (*Index)(nil)

// Open opens the file, makes it if it is missing, and brings its tables up to date.
func Open(path string) (*Index, error) {
	db, err := database.Open(path, steps)
	if err != nil {
		return nil, fmt.Errorf("artifact index: %w", err)
	}
	return &Index{db}, nil
}

// Close closes the file.
func (x *Index) Close() error { return x.db.Close() }

// write makes do one transaction.
func (x *Index) write(ctx context.Context, do func(tx *gorm.DB) error) error {
	return classed(x.db.Write.WithContext(ctx).Transaction(do))
}

// classed tells a full disk as what it is.
func classed(err error) error {
	var known sqlite3.Error
	if errors.As(err, &known) && known.Code == sqlite3.ErrFull {
		return fmt.Errorf("artifact index: %w: %w", syscall.ENOSPC, err)
	}
	return err
}

// Reserve counts a content once.
func (x *Index) Reserve(ctx context.Context, d artifacts.Digest, size, quota int64) error {
	return x.write(ctx, func(tx *gorm.DB) error {
		var known int64
		if err := tx.Model(&blob{}).Where("digest = ?", d).Count(&known).Error; err != nil || known > 0 {
			return err
		}
		used, err := usage(tx)
		if err != nil {
			return err
		}
		if quota >= 0 && size > quota-used {
			return artifacts.ErrQuota
		}
		if err := tx.Create(&blob{Digest: string(d), Size: size}).Error; err != nil {
			return err
		}
		return count(tx, size)
	})
}

// count adds to what Usage tells.
func count(tx *gorm.DB, bytes int64) error {
	return tx.Exec("UPDATE usage SET bytes = bytes + ?", bytes).Error
}

func usage(db *gorm.DB) (bytes int64, err error) {
	err = db.Raw("SELECT bytes FROM usage").Scan(&bytes).Error
	return bytes, err
}

// Usage is how much distinct content is counted.
func (x *Index) Usage(ctx context.Context) (int64, error) { return usage(x.db.Read.WithContext(ctx)) }

// Insert registers a.
func (x *Index) Insert(ctx context.Context, a artifacts.Artifact) error {
	return x.write(ctx, func(tx *gorm.DB) error {
		known, err := refer(tx, a.SHA256, 1)
		if err != nil {
			return err
		}
		if !known {
			return fmt.Errorf("content %s is not reserved: %w", a.SHA256, errdefs.ErrFailedPrecondition)
		}
		r := toRecord(a)
		return tx.Create(&r).Error
	})
}

// refer changes how many registrations a content has.
func refer(tx *gorm.DB, digest string, by int) (known bool, err error) {
	done := tx.Exec("UPDATE blobs SET refs = refs + ? WHERE digest = ?", by, digest)
	return done.RowsAffected > 0, done.Error
}

// Get yields a registration.
func (x *Index) Get(ctx context.Context, id string) (artifacts.Artifact, error) {
	r, err := take(x.db.Read.WithContext(ctx), id)
	return r.artifact(), err
}

func take(db *gorm.DB, id string) (record, error) {
	var r record
	err := db.Where("id = ?", id).Take(&r).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		err = fmt.Errorf("artifact %s: %w", id, errdefs.ErrNotFound)
	}
	return r, err
}

// Delete removes a registration.
func (x *Index) Delete(ctx context.Context, id string) (d artifacts.Digest, last bool, err error) {
	err = x.write(ctx, func(tx *gorm.DB) error {
		r, err := take(tx, id)
		if err != nil {
			return err
		}
		d = artifacts.Digest(r.Digest)
		if err := drop(tx, r); err != nil {
			return err
		}
		last, err = garbage(tx, r.Digest)
		return err
	})
	return d, last, err
}

func drop(tx *gorm.DB, r record) error {
	if err := tx.Exec("DELETE FROM artifacts WHERE seq = ?", r.Seq).Error; err != nil {
		return err
	}
	_, err := refer(tx, r.Digest, -1)
	return err
}

func garbage(tx *gorm.DB, digest string) (bool, error) {
	var n int64
	err := tx.Model(&blob{}).Where("digest = ? AND refs = 0", digest).Count(&n).Error
	return n > 0, err
}

// Expire removes registrations whose time is up, the oldest first.
func (x *Index) Expire(ctx context.Context, now time.Time, limit int) (removed int, err error) {
	err = x.write(ctx, func(tx *gorm.DB) error {
		var records []record
		err := tx.Select("seq", "digest").Where("expires_at > 0 AND expires_at <= ?", now.UnixMicro()).
			Order("expires_at").Limit(limit).Find(&records).Error
		if err != nil {
			return err
		}
		for _, r := range records {
			if err := drop(tx, r); err != nil {
				return err
			}
		}
		removed = len(records)
		return nil
	})
	if err != nil {
		return 0, err // all or nothing
	}
	return removed, nil
}

// Garbage yields contents that have no registration.
func (x *Index) Garbage(ctx context.Context, limit int) ([]artifacts.Digest, error) {
	var digests []artifacts.Digest
	err := x.db.Read.WithContext(ctx).Model(&blob{}).Where("refs = 0").Limit(limit).Pluck("digest", &digests).Error
	return digests, err
}

// Forget stops counting a content without registration.
func (x *Index) Forget(ctx context.Context, d artifacts.Digest, remove func() error) (size int64, gone bool, err error) {
	err = x.write(ctx, func(tx *gorm.DB) error {
		var found []blob
		if err := tx.Where("digest = ? AND refs = 0", d).Find(&found).Error; err != nil || len(found) == 0 {
			return err
		}
		if err := tx.Exec("DELETE FROM blobs WHERE digest = ?", d).Error; err != nil {
			return err
		}
		if err := count(tx, -found[0].Size); err != nil {
			return err
		}
		size, gone = found[0].Size, true
		return remove() // last: what it does can't be rolled back
	})
	if err != nil {
		return 0, false, err
	}
	return size, gone, nil
}
