package oci

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pruneAfter is how long an image that no name means any more is kept.
const pruneAfter = 7 * 24 * time.Hour

// enter notes that an engine uses the store, until the file is closed. The one
// that finds itself alone forgets images first: under others, and their
// containers, layers must stay.
func (s store) enter(now time.Time) (*os.File, error) {
	file, err := os.OpenFile(s.path("lives"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	fd := int(file.Fd())
	if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		err = s.prune(now)
	}
	if err == nil || errors.Is(err, unix.EWOULDBLOCK) {
		err = flock(fd, unix.LOCK_SH)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func flock(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// prune forgets images of Docker's, which could be taken over again, that no
// tag means and nobody has used for a while; then layers that no image has.
func (s store) prune(now time.Time) error {
	refs, err := all[reference](s, "refs")
	if err != nil {
		return err
	}
	images, err := all[image](s, "images")
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for file, i := range images {
		unused, err := s.unused(file, i, refs, now)
		if err != nil {
			return err
		}
		if unused {
			if err := s.forget(file, i, refs); err != nil {
				return err
			}
			continue
		}
		for _, layer := range i.Layers {
			used[layer] = true
		}
	}
	return s.pruneLayers(used)
}

func (s store) unused(file string, i image, refs map[string]reference, now time.Time) (bool, error) {
	docker := false
	for _, r := range refs {
		if r.Image != i.ID {
			continue
		}
		if r.Source == "" || !strings.Contains(r.Ref, "sha256:") {
			return false, nil
		}
		docker = true
	}
	info, err := os.Stat(file)
	if err != nil {
		return false, err
	}
	return docker && now.Sub(info.ModTime()) > pruneAfter, nil
}

func (s store) forget(file string, i image, refs map[string]reference) error {
	for name, r := range refs {
		if r.Image == i.ID {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return os.Remove(file)
}

func (s store) pruneLayers(used map[string]bool) error {
	entries, err := os.ReadDir(s.path("layers"))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if used[entry.Name()] {
			continue
		}
		if err := os.RemoveAll(s.path("layers", entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// touch notes that an image is used.
func (s store) touch(i image, now time.Time) error {
	hash, err := hashOf(i.ID)
	if err != nil {
		return err
	}
	return os.Chtimes(s.path("images", hash+".json"), now, now)
}

// all reads every file of a directory of the store, by its path. One that makes
// no sense is none.
func all[T any](s store, dir string) (map[string]T, error) {
	files, err := filepath.Glob(s.path(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	found := map[string]T{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var one T
		if json.Unmarshal(text, &one) == nil {
			found[file] = one
		}
	}
	return found, nil
}
