// Package sqlite is the artifact index in a SQLite file, which several
// processes may share.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"mcpx/artifacts"
	"mcpx/artifacts/sqlite/database"
	"mcpx/orchestrator/run"
)

// Index implements artifacts.Index.
type Index struct{ db *database.DB }

var _ artifacts.Index = (*Index)(nil)

// record is a row of the table artifacts.
type record struct {
	Seq       int64 `gorm:"primaryKey;autoIncrement"`
	ID        string
	Digest    string
	Name      string
	Title     string
	MIME      string `gorm:"column:mime"`
	Size      int64
	Run       string
	Session   string
	Principal string
	CreatedAt int64 // microseconds since 1970
	ExpiresAt int64 // the same; 0: never
}

func (record) TableName() string { return "artifacts" }

// blob is a row of the table blobs: one content and how many handles it has.
type blob struct {
	Digest string `gorm:"primaryKey"`
	Size   int64
	Refs   int64
}

func (blob) TableName() string { return "blobs" }

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

// Insert registers a, and counts its content once.
func (x *Index) Insert(ctx context.Context, a artifacts.Artifact, quota int64) error {
	return x.db.Write.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		known := tx.Model(&blob{}).Where("digest = ?", a.SHA256).Update("refs", gorm.Expr("refs + 1"))
		if known.Error != nil {
			return known.Error
		}
		if known.RowsAffected == 0 {
			if err := addBlob(tx, a, quota); err != nil {
				return err
			}
		}
		r := toRecord(a)
		return tx.Create(&r).Error
	})
}

func addBlob(tx *gorm.DB, a artifacts.Artifact, quota int64) error {
	used, err := usage(tx)
	if err != nil {
		return err
	}
	if quota > 0 && used+a.Size > quota {
		return &run.Error{Code: artifacts.CodeQuotaExceeded, Class: errdefs.ErrResourceExhausted,
			Message: fmt.Sprintf("artifact %q of %d bytes would lead over the store's quota of %d", a.Name, a.Size, quota),
			Hint:    "delete artifacts, or wait until their time is up"}
	}
	if err := tx.Create(&blob{Digest: a.SHA256, Size: a.Size, Refs: 1}).Error; err != nil {
		return err
	}
	return tx.Exec("UPDATE usage SET bytes = bytes + ?", a.Size).Error
}

func usage(db *gorm.DB) (bytes int64, err error) {
	err = db.Raw("SELECT bytes FROM usage").Scan(&bytes).Error
	return bytes, err
}

// Usage is how much distinct content is registered.
func (x *Index) Usage(ctx context.Context) (int64, error) { return usage(x.db.Read.WithContext(ctx)) }

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

// List yields a page, the newest first.
func (x *Index) List(ctx context.Context, f artifacts.Filter) ([]artifacts.Artifact, string, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = artifacts.DefaultLimit
	}
	limit = min(limit, artifacts.MaxLimit)
	db := x.db.Read.WithContext(ctx)
	q := db.Order("seq DESC").Limit(limit + 1)
	for column, value := range map[string]string{"run": f.Run, "session": f.Session, "principal": f.Principal} {
		if value != "" {
			q = q.Where(clause.Eq{Column: clause.Column{Name: column}, Value: value})
		}
	}
	if f.After != "" {
		last, err := take(db, f.After)
		if err != nil {
			return nil, "", err
		}
		q = q.Where("seq < ?", last.Seq)
	}
	var records []record
	if err := q.Find(&records).Error; err != nil {
		return nil, "", err
	}
	next := ""
	if len(records) > limit {
		records = records[:limit]
		next = records[limit-1].ID
	}
	page := make([]artifacts.Artifact, len(records))
	for i, r := range records {
		page[i] = r.artifact()
	}
	return page, next, nil
}

// Delete removes a registration and tells whether it was the content's last.
func (x *Index) Delete(ctx context.Context, id string) (a artifacts.Artifact, last bool, err error) {
	err = x.db.Write.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		r, err := take(tx, id)
		if err != nil {
			return err
		}
		a = r.artifact()
		if err := tx.Delete(&record{}, r.Seq).Error; err != nil {
			return err
		}
		if err := tx.Model(&blob{}).Where("digest = ?", r.Digest).Update("refs", gorm.Expr("refs - 1")).Error; err != nil {
			return err
		}
		gone := tx.Where("digest = ? AND refs <= 0", r.Digest).Delete(&blob{})
		if last = gone.RowsAffected > 0; gone.Error != nil || !last {
			return gone.Error
		}
		return tx.Exec("UPDATE usage SET bytes = bytes - ?", r.Size).Error
	})
	return a, last, err
}

// Expired yields ids whose time is up.
func (x *Index) Expired(ctx context.Context, now time.Time, limit int) ([]string, error) {
	var ids []string
	err := x.db.Read.WithContext(ctx).Model(&record{}).Where("expires_at > 0 AND expires_at < ?", now.UnixMicro()).
		Order("expires_at").Limit(limit).Pluck("id", &ids).Error
	return ids, err
}

// Registered tells whether a content has any registration.
func (x *Index) Registered(ctx context.Context, digest string) (bool, error) {
	var n int64
	err := x.db.Write.WithContext(ctx).Model(&blob{}).Where("digest = ?", digest).Count(&n).Error
	return n > 0, err
}

func toRecord(a artifacts.Artifact) record {
	r := record{
		ID: a.ID, Digest: a.SHA256, Name: a.Name, Title: a.Title, MIME: a.MIME, Size: a.Size,
		Run: a.Run, Session: a.Session, Principal: a.Principal, CreatedAt: a.CreatedAt.UnixMicro(),
	}
	if !a.ExpiresAt.IsZero() {
		r.ExpiresAt = a.ExpiresAt.UnixMicro()
	}
	return r
}

func (r record) artifact() artifacts.Artifact {
	a := artifacts.Artifact{
		ID: r.ID, SHA256: r.Digest, Name: r.Name, Title: r.Title, MIME: r.MIME, Size: r.Size,
		Run: r.Run, Session: r.Session, Principal: r.Principal, CreatedAt: time.UnixMicro(r.CreatedAt).UTC(),
	}
	if r.ExpiresAt != 0 {
		a.ExpiresAt = time.UnixMicro(r.ExpiresAt).UTC()
	}
	return a
}
