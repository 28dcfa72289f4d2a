package daemon

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// auditKeyBytes is that of HMAC-SHA256.
const auditKeyBytes = 32

// auditKey is the state directory's own key for the hashes of tool calls'
// arguments. It is made once; processes that make it at once agree on one.
func auditKey(state string) ([]byte, error) {
	path := filepath.Join(state, "audit.key")
	for {
		key, err := os.ReadFile(path)
		if err == nil && len(key) == auditKeyBytes {
			return key, nil
		}
		if err == nil {
			return nil, fmt.Errorf("audit key %s: it has %d bytes, not %d; remove it to have a new one made", path, len(key), auditKeyBytes)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("audit key: %w", err)
		}
		if err := makeKey(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("audit key: %w", err)
		}
	}
}

// makeKey writes a whole key or nothing: a link is made in one step.
func makeKey(path string) error {
	key := make([]byte, auditKeyBytes)
	rand.Read(key) // it never fails: crypto/rand ends the program instead
	file, err := os.CreateTemp(filepath.Dir(path), ".audit-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(key)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Link(file.Name(), path)
}
