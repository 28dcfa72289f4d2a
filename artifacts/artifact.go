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
	SHA256    string // of the content, in hex
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

// Filter selects artifacts; what is empty selects all.
type Filter struct {
	Run       string
	Session   string
	Principal string
	After     string // id: only those registered before it
	Limit     int    // 0: DefaultLimit
}

// Limits of a page.
const (
	DefaultLimit = 100
	MaxLimit     = 1000
)

// Index keeps registrations. Content and handles change together: each method
// is one transaction, across processes too.
type Index interface {
	// Insert registers a; errdefs.ErrResourceExhausted when its content is new
	// and would lead over quota (bytes of distinct content; 0: none).
	Insert(ctx context.Context, a Artifact, quota int64) error
	// Get yields a registration; errdefs.ErrNotFound when there is none.
	Get(ctx context.Context, id string) (Artifact, error)
	// List yields a page, the newest first, and where the next one begins.
	List(context.Context, Filter) (page []Artifact, next string, err error)
	// Delete removes a registration and tells whether it was the content's last.
	Delete(ctx context.Context, id string) (a Artifact, last bool, err error)
	// Expired yields at most limit ids whose time is up.
	Expired(ctx context.Context, now time.Time, limit int) ([]string, error)
	// Registered tells whether a content has any registration.
	Registered(ctx context.Context, digest string) (bool, error)
	// Usage is how much distinct content there is.
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
	const shown = 40
	if len(id) > shown {
		id = id[:shown] + "…"
	}
	return &run.Error{Code: run.CodeNotFound, Class: errdefs.ErrNotFound, Message: fmt.Sprintf("no artifact %q", id)}
}
