package sqlite

import (
	"time"

	"mcpx/artifacts"
)

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
	CreatedAt int64 `gorm:"autoCreateTime:false"` // microseconds since 1970
	ExpiresAt int64 // the same; 0: never
}

func (record) TableName() string { return "artifacts" }

// blob is a row of the table blobs: one content and how many registrations it has.
type blob struct {
	Digest string `gorm:"primaryKey"`
	Size   int64
	Refs   int64
}

func (blob) TableName() string { return "blobs" }

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
