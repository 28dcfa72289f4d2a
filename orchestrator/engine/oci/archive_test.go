package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/oci"
)

// member is a file of a tar, or a directory or link of one.
type member struct {
	name string
	data []byte
	kind byte // tar.TypeReg when 0
	link string
}

func tarOf(t *testing.T, members ...member) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range members {
		kind := m.kind
		if kind == 0 {
			kind = tar.TypeReg
		}
		require.NoError(t, w.WriteHeader(&tar.Header{Name: m.name, Typeflag: kind, Linkname: m.link, Mode: 0o755, Size: int64(len(m.data))}))
		_, err := w.Write(m.data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return out.Bytes()
}

func zipped(t *testing.T, data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

func configOf(t *testing.T, layers ...[]byte) []byte {
	var ids []string
	for _, layer := range layers {
		ids = append(ids, digest(layer))
	}
	text, err := json.Marshal(map[string]any{
		"os": "linux", "config": map[string]any{"Env": []string{"A=1"}, "Labels": map[string]string{"mcpx.init.protocol": "1"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": ids},
	})
	require.NoError(t, err)
	return text
}

func jsonOf(t *testing.T, value any) []byte {
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return text
}

// dockerArchive is what `docker save` writes.
func dockerArchive(t *testing.T, tags []string, layers ...[]byte) []byte {
	members := []member{{name: "config.json", data: configOf(t, layers...)}}
	var names []string
	for n, layer := range layers {
		names = append(names, fmt.Sprintf("%d/layer.tar", n))
		members = append(members, member{name: names[n], data: layer})
	}
	list := []map[string]any{{"Config": "config.json", "RepoTags": tags, "Layers": names}}
	return tarOf(t, append(members, member{name: "manifest.json", data: jsonOf(t, list)})...)
}

// layout is an OCI image layout with compressed layers.
func layout(t *testing.T, name string, layers ...[]byte) []byte {
	var members []member
	blob := func(data []byte) map[string]any {
		members = append(members, member{name: "blobs/sha256/" + digest(data)[len("sha256:"):], data: data})
		return map[string]any{"digest": digest(data), "size": len(data)}
	}
	config := blob(configOf(t, layers...))
	var packed []map[string]any
	for _, layer := range layers {
		packed = append(packed, blob(zipped(t, layer)))
	}
	manifest := blob(jsonOf(t, map[string]any{"config": config, "layers": packed}))
	manifest["annotations"] = map[string]string{"io.containerd.image.name": name}
	return tarOf(t, append(members, member{name: "index.json", data: jsonOf(t, map[string]any{"manifests": []any{manifest}})})...)
}

// bare are the layers of an image that holds nothing but copies of a static
// program; the upper one takes some of them away.
func bare(t *testing.T) (lower, upper []byte) {
	init, err := os.ReadFile(initPath(t))
	require.NoError(t, err)
	lower = tarOf(t,
		member{name: "kept", data: init}, member{name: "gone", data: init},
		member{name: "dir", kind: tar.TypeDir}, member{name: "dir/old", data: init},
		member{name: "mcpx", kind: tar.TypeDir}, member{name: "mcpx/init", data: init},
		member{name: "link", kind: tar.TypeSymlink, link: "kept"},
	)
	upper = tarOf(t,
		member{name: ".wh.gone"}, member{name: "dir", kind: tar.TypeDir}, member{name: "dir/.wh..wh..opq"},
		member{name: "dir/new", data: init},
	)
	return lower, upper
}

// TestOCIArchivesBecomeImages imports both kinds, and runs what has been
// unpacked; nothing of an image but the program is there, not even /proc.
func TestOCIArchivesBecomeImages(t *testing.T) {
	lower, upper := bare(t)
	for kind, archive := range map[string][]byte{
		"docker": dockerArchive(t, []string{"mcpx-test/bare:latest"}, lower, upper),
		"oci":    layout(t, "mcpx-test/bare", lower, upper),
	} {
		t.Run(kind, func(t *testing.T) {
			e := open(t, oci.Config{Dir: filepath.Join(t.TempDir(), "store"), DockerHost: "unix:///nonexistent/docker.sock"})
			images, err := e.Import(t.Context(), bytes.NewReader(archive))
			require.NoError(t, err)
			require.Len(t, images, 1)
			require.Equal(t, digest(configOf(t, lower, upper)), images[0].Digest)
			for _, ref := range []string{"mcpx-test/bare", "mcpx-test/bare:latest", images[0].Digest} {
				found, err := e.EnsureImage(t.Context(), ref, engine.PullNever)
				require.NoError(t, err)
				require.Equal(t, images[0], found)
				require.Equal(t, []string{"A=1"}, found.Env)
				require.Equal(t, engine.InitProtocol, found.Init)
			}
			for program, there := range map[string]bool{"/kept": true, "/link": true, "/gone": false, "/dir/new": true, "/dir/old": false} {
				spec := specOf(t, "archive")
				spec.Image, spec.ImageInit = "mcpx-test/bare", engine.InitProtocol
				r := runIn(t, e, spec, program, "version")
				require.Equal(t, there, r.StartError == "", "%s: %s", program, r.StartError)
				if there {
					require.Equal(t, engine.Exit{}, r.Exit, "%s: %s", program, r.stderr)
				}
			}
		})
	}
}

func TestOCIImageOfOneLayer(t *testing.T) {
	lower, _ := bare(t)
	e := open(t, oci.Config{Dir: filepath.Join(t.TempDir(), "store"), DockerHost: "unix:///nonexistent/docker.sock"})
	_, err := e.Import(t.Context(), bytes.NewReader(dockerArchive(t, []string{"one"}, lower)))
	require.NoError(t, err)
	spec := specOf(t, "one-layer")
	spec.Image, spec.ImageInit = "one", engine.InitProtocol
	require.Equal(t, engine.Exit{}, runIn(t, e, spec, "/gone", "version").Exit)
}

// What is wrong with an archive leaves nothing behind that could be taken for an image.
func TestOCIBadArchivesLeaveNothing(t *testing.T) {
	layer := tarOf(t, member{name: "a", data: []byte("a")})
	other := tarOf(t, member{name: "b", data: []byte("b")})
	list := func(config, layer string) []byte {
		return jsonOf(t, []map[string]any{{"Config": config, "RepoTags": []string{"bad"}, "Layers": []string{layer}}})
	}
	cases := map[string][]byte{
		"empty":       nil,
		"no tar":      []byte("this is no archive at all, whatever it says of itself"),
		"no manifest": tarOf(t, member{name: "x"}),
		"no JSON":     tarOf(t, member{name: "manifest.json", data: []byte("[")}),
		"no config":   tarOf(t, member{name: "manifest.json", data: list("config.json", "layer.tar")}),
		"no layer":    tarOf(t, member{name: "config.json", data: configOf(t, layer)}, member{name: "manifest.json", data: list("config.json", "layer.tar")}),
		"other content": tarOf(t, member{name: "config.json", data: configOf(t, layer)}, member{name: "layer.tar", data: other},
			member{name: "manifest.json", data: list("config.json", "layer.tar")}),
		"fewer layers": tarOf(t, member{name: "config.json", data: configOf(t, layer, other)}, member{name: "layer.tar", data: layer},
			member{name: "manifest.json", data: list("config.json", "layer.tar")}),
		"cut": dockerArchive(t, []string{"bad"}, layer)[:1500],
		"name that leads out": tarOf(t, member{name: "config.json", data: jsonOf(t, map[string]any{"rootfs": map[string]any{"diff_ids": []string{"sha256:../../../../tmp/x"}}})},
			member{name: "layer.tar", data: layer}, member{name: "manifest.json", data: list("config.json", "layer.tar")}),
	}
	dir := filepath.Join(t.TempDir(), "store")
	e := open(t, oci.Config{Dir: dir, DockerHost: "unix:///nonexistent/docker.sock"})
	for name, archive := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := e.Import(t.Context(), bytes.NewReader(archive))
			require.Error(t, err)
			for _, place := range []string{"layers", "images", "refs"} {
				left, err := os.ReadDir(filepath.Join(dir, place))
				require.NoError(t, err)
				require.Empty(t, left, place)
			}
			_, err = e.EnsureImage(t.Context(), "bad", engine.PullNever)
			require.ErrorIs(t, err, errdefs.ErrNotFound)
		})
	}
}

// A layer may try to write outside of its directory.
func TestOCILayersStayInTheirDirectory(t *testing.T) {
	outside := t.TempDir()
	for name, layer := range map[string][]byte{
		"up":         tarOf(t, member{name: "../../../escaped", data: []byte("x")}),
		"link":       tarOf(t, member{name: "out", kind: tar.TypeSymlink, link: outside}, member{name: "out/escaped", data: []byte("x")}),
		"hard link":  tarOf(t, member{name: "passwd", kind: tar.TypeLink, link: "/etc/passwd"}),
		"whiteout":   tarOf(t, member{name: "../../refs/.wh.x"}),
		"dots in wh": tarOf(t, member{name: ".wh..."}),
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			e := open(t, oci.Config{Dir: dir, DockerHost: "unix:///nonexistent/docker.sock"})
			e.Import(t.Context(), bytes.NewReader(dockerArchive(t, []string{"bad"}, layer))) //nolint:errcheck // where it ends up is what matters
			entries, err := os.ReadDir(outside)
			require.NoError(t, err)
			require.Empty(t, entries)
			require.NoFileExists(t, filepath.Join(dir, "escaped"))
			require.NoFileExists(t, filepath.Join(filepath.Dir(dir), "escaped"))
			own, err := os.ReadDir(dir)
			require.NoError(t, err)
			for _, entry := range own {
				require.Contains(t, []string{"etc", "images", "layers", "lives", "lock", "mnt", "refs", "run"}, entry.Name())
			}
		})
	}
}

func TestOCIImportEndsWithItsContext(t *testing.T) {
	e := open(t, oci.Config{Dir: filepath.Join(t.TempDir(), "store")})
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	from, to := io.Pipe()
	go func() {
		to.Write([]byte("the beginning")) //nolint:errcheck // it is read
		cancel(enough)
		to.Write([]byte("and more")) //nolint:errcheck // nobody reads it
	}()
	_, err := e.Import(ctx, from)
	require.ErrorIs(t, err, enough)
	require.NoError(t, from.Close())
}
