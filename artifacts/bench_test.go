package artifacts_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
)

const kilobyte = 1 << 10

// Small artifacts, as a script leaves many of: what counts is the price of one.
func BenchmarkPutSmall(b *testing.B) {
	for _, writers := range []int{1, 8} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			s := open(b, b.TempDir(), artifacts.Options{Quota: -1})
			var n atomic.Int64
			b.SetParallelism(writers)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					content := bytes.Repeat([]byte{byte(n.Add(1))}, kilobyte)
					copy(content, fmt.Sprint(n.Load(), p))
					_, err := tryPut(b.Context(), s, artifacts.Meta{Name: "x", Size: kilobyte}, string(content))
					if err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// Large ones beside the same bytes hashed only, and copied and hashed one after the other.
func BenchmarkPutLarge(b *testing.B) {
	const size = 256 * megabyte
	content := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	run := func(name string, do func(b *testing.B, in io.Reader)) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			for b.Loop() {
				do(b, struct{ io.Reader }{bytes.NewReader(content)}) // no WriterTo: pieces, as they come from a socket
			}
		})
	}
	s := open(b, b.TempDir(), artifacts.Options{MaxBytes: size})
	run("put", func(b *testing.B, in io.Reader) {
		w, err := s.Create(b.Context(), artifacts.Meta{Name: "x", Size: size})
		require.NoError(b, err)
		_, err = io.Copy(w, in)
		require.NoError(b, err)
		_, err = w.Commit()
		require.NoError(b, err)
	})
	run("hash", func(b *testing.B, in io.Reader) {
		_, err := io.Copy(sha256.New(), in)
		require.NoError(b, err)
	})
	dir := b.TempDir()
	run("copy then hash", func(b *testing.B, in io.Reader) {
		f, err := os.Create(filepath.Join(dir, "x"))
		require.NoError(b, err)
		defer f.Close()
		_, err = io.Copy(io.MultiWriter(f, sha256.New()), in)
		require.NoError(b, err)
		require.NoError(b, f.Sync())
	})
}
