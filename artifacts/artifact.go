// Package artifacts keeps what scripts leave: content by its sha256, each
// registration under a random handle of its own. A handle is a secret, a digest
// is not: whoever can guess the content can guess its digest.
package artifacts

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Artifact is one registration of a content.
type Artifact struct {
	ID        string // handle: 128 random bits in hex
	Name      string // safe for any file system; see SafeName
	Title     string // the last component of the name as it was given
	MIME      string
	SHA256    string // of the content, a Digest
	Size      int64  // bytes
	Run       string
	Session   string
	Principal string // whose it is
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
}

// URIPrefix is that of an artifact's address for MCP clients.
const URIPrefix = "mcpx://artifacts/"

// Ref is the artifact as runs and listings tell of it.
func (a Artifact) Ref() run.Artifact {
	return run.Artifact{ID: a.ID, Name: a.Name, MIME: a.MIME, Size: a.Size, SHA256: a.SHA256, URI: URIPrefix + a.ID}
}

func (a Artifact) expired(now time.Time) bool {
	return !a.ExpiresAt.IsZero() && !now.Before(a.ExpiresAt)
}

// Filter selects artifacts; what is empty selects all.
type Filter struct {
	Run       string
	Session   string
	Principal string
	After     string // `next` of the page before
	Limit     int    // 0: DefaultLimit
}

// Limits of a page.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// Index keeps registrations and counts contents. It is safe for concurrent
// use, also by several processes; each method is one transaction.
//
// A content is counted from Reserve to Forget. Between Reserve and its first
// Insert, and after its last registration went, it is garbage: so whatever lies
// among the blobs is known here, even when a process died in the middle.
//
// A method that finds the disk full returns an error that is syscall.ENOSPC.
type Index interface {
	// Reserve counts a content that is about to be placed; nothing happens when
	// it is counted already. ErrQuota when it would lead over quota (bytes of
	// distinct content; below 0: no limit).
	Reserve(ctx context.Context, d Digest, size, quota int64) error
	// Insert registers a; errdefs.ErrFailedPrecondition when its content is not counted.
	Insert(ctx context.Context, a Artifact) error
	// Get yields a registration; errdefs.ErrNotFound when there is none.
	Get(ctx context.Context, id string) (Artifact, error)
	// List yields a page of those whose time is not up at now, the newest
	// first, and where the next page begins, which stays right whatever is
	// deleted meanwhile. errdefs.ErrInvalidArgument when f.After is none of ours.
	List(ctx context.Context, now time.Time, f Filter) (page []Artifact, next string, err error)
	// Delete removes a registration and tells whether it was its content's last.
	Delete(ctx context.Context, id string) (d Digest, last bool, err error)
	// Expire removes at most limit registrations whose time is up at now.
	Expire(ctx context.Context, now time.Time, limit int) (removed int, err error)
	// Garbage yields at most limit contents that have no registration.
	Garbage(ctx context.Context, limit int) ([]Digest, error)
	// Forget stops counting a content that is garbage, once remove has removed
	// it, and tells its size. An error of remove leaves it counted. For any
	// other content remove is not called, and gone is false.
	Forget(ctx context.Context, d Digest, remove func() error) (size int64, gone bool, err error)
	// Usage is how many bytes of distinct content are counted.
	Usage(context.Context) (bytes int64, err error)
}

const idBytes = 16

func newID() string {
	var raw [idBytes]byte
	rand.Read(raw[:]) // it never fails: crypto/rand ends the program instead
	return hex.EncodeToString(raw[:])
}

// ParseID tells whether text can be a handle; errdefs.ErrNotFound if not, for
// that is what whoever asks for it should learn.
func ParseID(text string) (string, error) {
	if raw, err := hex.DecodeString(text); err != nil || len(raw) != idBytes || hex.EncodeToString(raw) != text {
		return "", notFound(text)
	}
	return text, nil
}

func notFound(id string) error {
	return &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: fmt.Sprintf("no artifact %q", clip(id))}
}
