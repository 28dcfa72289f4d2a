// Package indextest holds implementations of artifacts.Index to what it says:
// each sentence there is a case here.
package indextest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
)

// Open opens the index that is kept in dir and closes it with the test. Several
// may be open on one directory, as by several processes.
type Open func(t testing.TB, dir string) artifacts.Index

// check is one sentence of the contract.
type check struct {
	name string
	hold func(b *bench)
}

// Run tests what open opens.
func Run(t *testing.T, open Open) {
	for _, checks := range [][]check{contentChecks, registrationChecks, pageChecks, expiryChecks, sharingChecks} {
		for _, c := range checks {
			t.Run(c.name, func(t *testing.T) {
				dir := t.TempDir()
				c.hold(&bench{TB: t, Index: open(t, dir), again: func() artifacts.Index { return open(t, dir) }})
			})
		}
	}
}

// noLimit is a quota that is none.
const noLimit = -1

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// bench is one case's index, with what cases do over and over.
type bench struct {
	testing.TB
	artifacts.Index
	again func() artifacts.Index // another handle of the same index
	made  int
}

// digest is that of a content that is named by a text.
func digest(text string) artifacts.Digest {
	sum := sha256.Sum256([]byte(text))
	return artifacts.Digest(hex.EncodeToString(sum[:]))
}

// next makes an artifact of a content that is its own text.
func (b *bench) next(content string) artifacts.Artifact {
	b.made++
	return artifacts.Artifact{
		ID: fmt.Sprintf("%032x", b.made), Name: "n", Title: "title of " + content, MIME: "text/plain",
		SHA256: string(digest(content)), Size: int64(len(content)),
		Run: "r", Session: "s", Principal: "p", CreatedAt: noon, ExpiresAt: noon.Add(time.Hour),
	}
}

// add registers an artifact that edit has changed.
func (b *bench) add(content string, edit func(*artifacts.Artifact)) artifacts.Artifact {
	b.Helper()
	a := b.next(content)
	if edit != nil {
		edit(&a)
	}
	require.NoError(b, register(b.Context(), b.Index, a))
	return a
}

func register(ctx context.Context, x artifacts.Index, a artifacts.Artifact) error {
	if err := x.Reserve(ctx, artifacts.Digest(a.SHA256), a.Size, noLimit); err != nil {
		return err
	}
	return x.Insert(ctx, a)
}

func (b *bench) usage() int64 {
	b.Helper()
	bytes, err := b.Usage(b.Context())
	require.NoError(b, err)
	return bytes
}

func (b *bench) garbage() []artifacts.Digest {
	b.Helper()
	digests, err := b.Garbage(b.Context(), 1000)
	require.NoError(b, err)
	return digests
}
