package oci

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// store keeps images below a directory:
//
//	images/<id>.json       what an image is
//	refs/<hash>.json       which image a reference means
//	layers/<diff id>/      a layer, as overlayfs takes it
//	etc/                   files that every container has
//	run/<owner>/<id>/      what belongs to a container
//	mnt/                   the mounts of a living engine
//	lock, lives            locks
//
// What is there is whole: everything comes by rename. A lock keeps two
// processes from unpacking at the same time.
type store struct{ dir string }

// image is what an image's configuration says that a container needs.
type image struct {
	ID      string   `json:"id"`     // sha256:…, of the configuration
	Digest  string   `json:"digest"` // what it is called outside: Docker's ID, or ID
	Env     []string `json:"env,omitempty"`
	Init    string   `json:"init,omitempty"`
	Volumes []string `json:"volumes,omitempty"`
	Layers  []string `json:"layers"` // names below layers/, the lowest first
	Size    int64    `json:"size"`
}

// reference is what a name stands for.
type reference struct {
	Ref    string `json:"ref"`
	Image  string `json:"image"`
	Source string `json:"source,omitempty"` // Docker's own ID of it
}

func (s store) open() error {
	for _, name := range []string{"images", "refs", "layers", "etc", "run", mntName} {
		if err := os.MkdirAll(filepath.Join(s.dir, name), 0o700); err != nil {
			return err
		}
	}
	// An image's set-uid programs are not for this machine's users.
	if err := os.Chmod(s.dir, 0o700); err != nil {
		return err
	}
	for name, text := range hostFiles() {
		if err := s.put(filepath.Join("etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s store) path(names ...string) string {
	return filepath.Join(append([]string{s.dir}, names...)...)
}

// put makes a file appear as a whole.
func (s store) put(name string, data []byte, mode fs.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(s.path(name)), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) //nolint:errcheck // it has been renamed, or is of no use
	_, err = file.Write(data)
	if err := errors.Join(err, file.Chmod(mode), file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), s.path(name))
}

func (s store) putJSON(name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return s.put(name, data, 0o600)
}

// get reads what putJSON wrote; errdefs.ErrNotFound when it did not.
func (s store) get(name string, value any) error {
	data, err := os.ReadFile(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", name, errdefs.ErrNotFound)
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, value); err != nil {
		return fmt.Errorf("%s: %w", s.path(name), err)
	}
	return nil
}

// refFile is the same for a name with and without the tag that goes without saying.
func refFile(ref string) string {
	sum := sha256.Sum256([]byte(strings.TrimSuffix(ref, ":latest")))
	return filepath.Join("refs", hex.EncodeToString(sum[:])+".json")
}

func (s store) reference(ref string) (reference, error) {
	var found reference
	err := s.get(refFile(ref), &found)
	return found, err
}

// image finds an image by its ID.
func (s store) image(id string) (image, error) {
	hash, err := hashOf(id)
	if err != nil {
		return image{}, fmt.Errorf("image %s: %w: %w", id, err, errdefs.ErrNotFound)
	}
	var found image
	err = s.get(filepath.Join("images", hash+".json"), &found)
	return found, err
}

// add makes i known, and what it is called.
func (s store) add(i image, names ...reference) error {
	hash, err := hashOf(i.ID)
	if err != nil {
		return err
	}
	if err := s.putJSON(filepath.Join("images", hash+".json"), i); err != nil {
		return err
	}
	for _, r := range names {
		if err := s.name(r); err != nil {
			return err
		}
	}
	return nil
}

func (s store) name(r reference) error { return s.putJSON(refFile(r.Ref), r) }

// hashOf takes the prefix off a digest. What it yields is safe as a file's name.
func hashOf(digest string) (string, error) {
	hash, ok := strings.CutPrefix(digest, "sha256:")
	raw, err := hex.DecodeString(hash)
	if !ok || err != nil || len(raw) != sha256.Size || strings.ToLower(hash) != hash {
		return "", fmt.Errorf("%.80q is no sha256 digest: %w", digest, errdefs.ErrInvalidArgument)
	}
	return hash, nil
}

// layerName is short, for the names of many layers have to fit into one mount.
func layerName(diffID string) (string, error) {
	hash, err := hashOf(diffID)
	if err != nil {
		return "", err
	}
	return hash[:32], nil
}

// lock waits until no other process unpacks, and clears what one that died has left.
func (s store) lock() (unlock func() error, err error) {
	file, err := os.OpenFile(s.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err = flock(int(file.Fd()), unix.LOCK_EX); err == nil {
		err = s.clear()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock of the image store: %w", err), file.Close())
	}
	return file.Close, nil
}

func (s store) clear() error {
	left, err := filepath.Glob(s.path("layers", ".new-*"))
	if err != nil {
		return err
	}
	for _, dir := range left {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}
