package oci

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// roots are the mounted root file systems. One serves every container of an
// image with the same mount points: it is read-only, so nothing of a run stays.
type roots struct {
	space *space
	store store
	dir   string

	mu    sync.Mutex
	known map[string]*root
	used  list.List // of *root, the latest first
	count int
}

// maxRoots bounds the mounts; a container keeps its own when one is dropped.
const maxRoots = 128

type root struct {
	key  string
	at   *list.Element
	path string
	fail error
	once sync.Once
	// holders are starts under way, which want the mount to be there.
	holders int
	dropped bool
}

// hold yields the path of a root for i in which the mounts find their places.
// It stays until release is called, and mostly longer.
func (r *roots) hold(i image, mounts []specs.Mount) (path string, release func(), err error) {
	points := pointsOf(mounts)
	one := r.take(keyOf(i, points))
	one.once.Do(func() { one.path, one.fail = r.mount(i, points) })
	release = func() { r.release(one) }
	if one.fail != nil {
		r.forget(one)
		release()
		return "", nil, fmt.Errorf("root of image %s: %w", i.ID, one.fail)
	}
	return one.path, release, nil
}

func (r *roots) take(key string) *root {
	r.mu.Lock()
	one, ok := r.known[key]
	var old *root
	if !ok {
		one = &root{key: key}
		one.at = r.used.PushFront(one)
		r.known[key] = one
		if r.used.Len() > maxRoots {
			old = r.drop(r.used.Back().Value.(*root))
		}
	}
	r.used.MoveToFront(one.at)
	one.holders++
	r.mu.Unlock()
	r.unmount(old)
	return one
}

func (r *roots) release(one *root) {
	r.mu.Lock()
	one.holders--
	var old *root
	if one.dropped && one.holders == 0 {
		old = one
	}
	r.mu.Unlock()
	r.unmount(old)
}

// forget lets the next one try again.
func (r *roots) forget(one *root) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !one.dropped {
		r.drop(one)
	}
}

// drop takes one out of the list, and yields it if it can be unmounted now.
func (r *roots) drop(one *root) *root {
	r.used.Remove(one.at)
	delete(r.known, one.key)
	one.dropped = true
	if one.holders > 0 {
		return nil
	}
	return one
}

func (r *roots) unmount(one *root) {
	if one == nil || one.path == "" {
		return
	}
	// What can't be unmounted now goes with the engine's namespace.
	r.space.run(func() error { return unix.Unmount(one.path, unix.MNT_DETACH) }) //nolint:errcheck
}

// point is a place for a mount.
type point struct {
	path string
	file bool
}

// pointsOf leaves out what lies in another mount: the runtime makes it there.
func pointsOf(mounts []specs.Mount) []point {
	var all []point
	for _, m := range mounts {
		inside := slices.ContainsFunc(mounts, func(outer specs.Mount) bool {
			return strings.HasPrefix(m.Destination, outer.Destination+"/")
		})
		if !inside {
			all = append(all, point{m.Destination, isFile(m)})
		}
	}
	return all
}

func isFile(m specs.Mount) bool {
	if m.Type != "bind" {
		return false
	}
	info, err := os.Stat(m.Source)
	return err == nil && !info.IsDir()
}

func keyOf(i image, points []point) string {
	var key strings.Builder
	key.WriteString(i.ID)
	for _, p := range points {
		fmt.Fprintf(&key, "\x00%s\x00%t", p.path, p.file)
	}
	return key.String()
}

// mount mounts an image, and if it lacks points a second time with a layer
// above that has them. The directories above a point keep their owner and mode.
func (r *roots) mount(i image, points []point) (string, error) {
	base, err := r.base(i)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	r.count++
	name := strconv.Itoa(r.count)
	r.mu.Unlock()
	var at string
	err = r.space.run(func() error {
		missing, err := missingOf(base, points)
		if err != nil || len(missing) == 0 {
			at = base
			return err
		}
		layer := filepath.Join(mntName, "points-"+name)
		if err := makePoints(base, filepath.Join(r.dir, layer), missing); err != nil {
			return err
		}
		at = filepath.Join(r.dir, mntName, "root-"+name)
		return r.overlay(at, append([]string{layer}, lowers(i)...))
	})
	return at, err
}

// base is the image as it is, mounted once.
func (r *roots) base(i image) (string, error) {
	hash, err := hashOf(i.ID)
	if err != nil {
		return "", err
	}
	at := filepath.Join(r.dir, mntName, hash)
	r.mu.Lock()
	defer r.mu.Unlock()
	return at, r.space.run(func() error {
		if _, err := os.Stat(at); err == nil {
			return nil
		}
		return errors.Join(r.store.touch(i, time.Now()), r.overlay(at, lowers(i)))
	})
}

// lowers are an image's layers as overlayfs wants them, the uppermost first.
func lowers(i image) []string {
	var all []string
	for _, name := range slices.Backward(i.Layers) {
		all = append(all, filepath.Join("layers", name))
	}
	return all
}

// overlay mounts layers at a new directory. Their names are short, and so that
// many of them fit into one page they are relative.
func (r *roots) overlay(at string, layers []string) error {
	if err := os.Mkdir(at, 0o755); err != nil {
		return err
	}
	err := os.Chdir(r.dir) // the thread's own
	if err == nil && len(layers) == 1 {
		err = bindReadOnly(layers[0], at)
	} else if err == nil {
		options := "lowerdir=" + strings.Join(layers, ":")
		err = unix.Mount("overlay", at, "overlay", unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID, options)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("mount of %d layers: %w", len(layers), err), os.Remove(at))
	}
	return nil
}

// bindReadOnly is for an image of one layer, which overlayfs refuses alone.
func bindReadOnly(layer, at string) error {
	if err := unix.Mount(layer, at, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	return unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID, "")
}

// missingOf finds which points are not in base, as paths without links.
func missingOf(base string, points []point) ([]point, error) {
	var missing []point
	for _, p := range points {
		real, there, err := resolve(base, p.path)
		if err != nil {
			return nil, fmt.Errorf("mount at %s: %w", p.path, err)
		}
		if !there {
			missing = append(missing, point{real, p.file})
		}
	}
	return missing, nil
}

const maxLinks = 40

// resolve follows the links of name inside of base, which nobody writes to. The
// result has none in what is there of it.
func resolve(base, name string) (real string, there bool, err error) {
	left := strings.Split(strings.Trim(path.Clean(name), "/"), "/")
	real, there = "/", true
	for links := 0; len(left) > 0; {
		next := path.Join(real, left[0])
		left = left[1:]
		info, err := os.Lstat(filepath.Join(base, next))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return path.Join(append([]string{next}, left...)...), false, nil
		case err != nil:
			return "", false, err
		case info.Mode()&fs.ModeSymlink != 0:
			if links++; links > maxLinks {
				return "", false, fmt.Errorf("too many links: %w", errdefs.ErrInvalidArgument)
			}
			target, err := os.Readlink(filepath.Join(base, next))
			if err != nil {
				return "", false, err
			}
			if path.IsAbs(target) {
				real = "/"
			}
			left = append(strings.FieldsFunc(target, func(r rune) bool { return r == '/' }), left...)
		default:
			real = next
		}
	}
	return real, there, nil
}

// makePoints makes a layer of the points.
func makePoints(base, layer string, points []point) error {
	if err := likeIn(base, layer, "/"); err != nil {
		return err
	}
	for _, p := range points {
		if err := makeAbove(base, layer, path.Dir(p.path)); err != nil {
			return err
		}
		if !p.file {
			if err := likeIn(base, layer, p.path); err != nil {
				return err
			}
			continue
		}
		file, err := os.OpenFile(filepath.Join(layer, p.path), os.O_CREATE|os.O_RDONLY, 0o644)
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

func makeAbove(base, layer, dir string) error {
	if dir != "/" {
		if err := makeAbove(base, layer, path.Dir(dir)); err != nil {
			return err
		}
	}
	return likeIn(base, layer, dir)
}

// likeIn makes a directory with the owner and mode that it has in base.
func likeIn(base, layer, dir string) error {
	at := filepath.Join(layer, dir)
	if err := os.Mkdir(at, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	var have unix.Stat_t
	err := unix.Stat(filepath.Join(base, dir), &have)
	if errors.Is(err, unix.ENOENT) {
		return os.Chmod(at, 0o755) // whatever the umask is
	}
	if err != nil {
		return err
	}
	if err := os.Chown(at, int(have.Uid), int(have.Gid)); err != nil {
		return err
	}
	return unix.Chmod(at, have.Mode&0o7777)
}
