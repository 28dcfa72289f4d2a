package oci

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/moby/go-archive"
	"github.com/moby/go-archive/chrootarchive"
	"github.com/moby/go-archive/compression"
	"golang.org/x/sys/unix"
)

// initLabel is how an image says that it carries an init.
const initLabel = "mcpx.init.protocol"

// maxConfig bounds what of an archive is read into memory.
const maxConfig = 4 << 20

// archived is an image archive in a file: where its members lie.
type archived struct {
	file    *os.File
	members map[string]*io.SectionReader
}

// manifest is one image of an archive, as `docker save` lists it.
type manifest struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// spool keeps a stream in a file without a name, for its manifest comes last.
func spool(ctx context.Context, dir string, stream io.Reader) (*archived, error) {
	file, err := os.CreateTemp(dir, ".archive-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	a := &archived{file: file, members: map[string]*io.SectionReader{}}
	if _, err = io.Copy(file, bounded{ctx, stream}); err == nil {
		err = a.index()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("image archive: %w", err), file.Close())
	}
	return a, nil
}

// bounded is a reader that ends with its context.
type bounded struct {
	ctx context.Context
	io.Reader
}

func (b bounded) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, context.Cause(b.ctx)
	}
	return b.Reader.Read(p)
}

func (a *archived) index() error {
	if _, err := a.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	links := map[string]string{}
	for in := tar.NewReader(a.file); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		name := path.Clean(header.Name)
		switch header.Typeflag {
		case tar.TypeReg:
			at, err := a.file.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			a.members[name] = io.NewSectionReader(a.file, at, header.Size)
		case tar.TypeSymlink: // older daemons: a layer that another one is too
			links[name] = path.Join(path.Dir(name), header.Linkname)
		}
	}
	for name, target := range links {
		if to, ok := a.members[target]; ok {
			a.members[name] = to
		}
	}
	return nil
}

func (a *archived) close() error { return a.file.Close() }

func (a *archived) open(name string) (*io.SectionReader, error) {
	member, ok := a.members[path.Clean(name)]
	if !ok {
		return nil, fmt.Errorf("image archive lacks %.200q: %w", name, errdefs.ErrInvalidArgument)
	}
	return io.NewSectionReader(member, 0, member.Size()), nil
}

func (a *archived) read(name string) ([]byte, error) {
	member, err := a.open(name)
	if err != nil {
		return nil, err
	}
	if member.Size() > maxConfig {
		return nil, fmt.Errorf("%.200q in an image archive is of %d bytes: %w", name, member.Size(), errdefs.ErrInvalidArgument)
	}
	return io.ReadAll(member)
}

// manifests lists the images, whichever of the two forms the archive has.
func (a *archived) manifests() ([]manifest, error) {
	if _, ok := a.members["manifest.json"]; !ok {
		return a.layout()
	}
	text, err := a.read("manifest.json")
	if err != nil {
		return nil, err
	}
	var all []manifest
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("manifest.json of an image archive: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return all, nil
}

// descriptor is how an OCI layout points at its parts.
type descriptor struct {
	Digest      string
	Annotations map[string]string
	Platform    *struct{ OS, Architecture string }
}

// layout reads the index of an OCI image layout.
func (a *archived) layout() ([]manifest, error) {
	var index struct{ Manifests []descriptor }
	if err := a.decode("index.json", &index); err != nil {
		return nil, err
	}
	var all []manifest
	for _, d := range index.Manifests {
		var m struct {
			Config descriptor
			Layers []descriptor
		}
		if err := a.decode(blob(d.Digest), &m); err != nil {
			return nil, err
		}
		one := manifest{Config: blob(m.Config.Digest)}
		for _, layer := range m.Layers {
			one.Layers = append(one.Layers, blob(layer.Digest))
		}
		if name := d.Annotations["io.containerd.image.name"]; name != "" {
			one.RepoTags = []string{name}
		} else if name := d.Annotations["org.opencontainers.image.ref.name"]; name != "" {
			one.RepoTags = []string{name}
		}
		all = append(all, one)
	}
	return all, nil
}

func (a *archived) decode(name string, into any) error {
	text, err := a.read(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%.200q of an image archive: %w: %w", name, err, errdefs.ErrInvalidArgument)
	}
	return nil
}

func blob(digest string) string {
	hash, err := hashOf(digest)
	if err != nil {
		return digest // which is not to be found then
	}
	return "blobs/sha256/" + hash
}

// imageConfig is the part of an image's configuration that is used here.
type imageConfig struct {
	OS, Architecture string
	Config           struct {
		Env     []string
		Labels  map[string]string
		Volumes map[string]struct{}
	}
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// unpack takes one image of an archive into the store.
func (s store) unpack(ctx context.Context, a *archived, m manifest) (image, error) {
	text, err := a.read(m.Config)
	if err != nil {
		return image{}, err
	}
	var c imageConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return image{}, fmt.Errorf("configuration of an image: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if len(c.RootFS.DiffIDs) != len(m.Layers) || len(m.Layers) == 0 {
		return image{}, fmt.Errorf("image with %d layers of which its configuration names %d: %w", len(m.Layers), len(c.RootFS.DiffIDs), errdefs.ErrInvalidArgument)
	}
	sum := sha256.Sum256(text)
	id := "sha256:" + hex.EncodeToString(sum[:])
	i := image{
		ID: id, Digest: id, Env: c.Config.Env, Init: c.Config.Labels[initLabel],
		Volumes: slices.Sorted(maps.Keys(c.Config.Volumes)),
	}
	for n, diffID := range c.RootFS.DiffIDs {
		layer, err := a.open(m.Layers[n])
		if err != nil {
			return image{}, err
		}
		name, size, err := s.unpackLayer(ctx, diffID, layer)
		if err != nil {
			return image{}, fmt.Errorf("layer %s: %w", diffID, err)
		}
		i.Layers = append(i.Layers, name)
		i.Size += size
	}
	return i, nil
}

// unpackLayer unpacks a layer that is not here yet, and sees that its content
// is what its name says. The size is the archive's.
func (s store) unpackLayer(ctx context.Context, diffID string, from *io.SectionReader) (string, int64, error) {
	name, err := layerName(diffID)
	if err != nil {
		return "", 0, err
	}
	final := s.path("layers", name)
	if _, err := os.Stat(final); err == nil {
		return name, from.Size(), nil
	}
	fresh, err := os.MkdirTemp(s.path("layers"), ".new-")
	if err != nil {
		return "", 0, err
	}
	defer os.RemoveAll(fresh) //nolint:errcheck // it has been renamed, or the next to lock clears it
	if err := os.Chmod(fresh, 0o755); err != nil {
		return "", 0, err
	}
	sum, err := extract(ctx, from, fresh)
	if err != nil {
		return "", 0, err
	}
	if sum != diffID {
		return "", 0, fmt.Errorf("its content is %s: %w", sum, errdefs.ErrInvalidArgument)
	}
	if err := dropDevices(fresh); err != nil {
		return "", 0, err
	}
	if err := syncDir(fresh); err != nil {
		return "", 0, err
	}
	return name, from.Size(), os.Rename(fresh, final)
}

// extract unpacks a layer the way overlayfs keeps one, and yields its digest.
func extract(ctx context.Context, from io.Reader, dir string) (string, error) {
	plain, err := compression.DecompressStream(from)
	if err != nil {
		return "", err
	}
	defer plain.Close()
	hash := sha256.New()
	in := io.TeeReader(bounded{ctx, plain}, hash)
	options := &archive.TarOptions{WhiteoutFormat: archive.OverlayWhiteoutFormat}
	if err := chrootarchive.UntarUncompressed(in, dir, options); err != nil {
		return "", err
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // padding is hashed too
		return "", err
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil)), nil
}

// dropDevices takes the host's devices out of a layer: crun takes nodev off the
// root's mount, and a device's mode is the layer's. What overlayfs has whiteouts
// for, the device without a driver, is none.
func dropDevices(dir string) error {
	return filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeDevice == 0 {
			return err
		}
		var is unix.Stat_t
		if err := unix.Lstat(name, &is); err != nil {
			return err
		}
		if is.Rdev == 0 {
			return nil
		}
		return os.Remove(name)
	})
}

// syncDir writes out the file system that dir is on, before its name says that it is whole.
func syncDir(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(file.Fd())), file.Close())
}
