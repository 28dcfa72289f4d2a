package artifacts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"
)

// Digest is a content's sha256 in lower-case hex. One that came from
// ParseDigest or from hashing can be made a path without further care.
type Digest string

// ParseDigest takes exactly the text that String of a Digest yields;
// errdefs.ErrInvalidArgument for any other.
func ParseDigest(text string) (Digest, error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != sha256.Size || hex.EncodeToString(raw) != text {
		return "", fmt.Errorf("%q is not a sha256 in hex: %w", clip(text), errdefs.ErrInvalidArgument)
	}
	return Digest(text), nil
}

// path is where the content lies below the directory of blobs.
func (d Digest) path() string { return filepath.Join(d.folder(), string(d[2:])) }

// folder is the first part of path.
func (d Digest) folder() string { return string(d[:2]) }

// clip keeps a stranger's text from filling a message.
func clip(text string) string {
	const shown = 64 // a digest, whole
	if len(text) > shown {
		return text[:shown] + "…"
	}
	return text
}
