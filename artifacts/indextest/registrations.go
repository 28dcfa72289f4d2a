package indextest

import (
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
)

// registrationChecks are about one handle: Insert, Get, Delete.
var registrationChecks = []check{
	{"a registration comes back as it was", func(b *bench) {
		for _, edit := range []func(*artifacts.Artifact){
			nil,
			func(a *artifacts.Artifact) { a.ExpiresAt = time.Time{} },
			func(a *artifacts.Artifact) { a.Run, a.Session, a.Principal = "", "", "" },
			func(a *artifacts.Artifact) { a.Title, a.CreatedAt = "測試'; --\n", noon.Add(time.Microsecond) },
		} {
			a := b.add("x", edit)
			got, err := b.Get(b.Context(), a.ID)
			require.NoError(b, err)
			require.Equal(b, a, got)
		}
	}},
	{"nothing is registered for a content that is not counted", func(b *bench) {
		a := b.next("never reserved")
		require.True(b, errdefs.IsFailedPrecondition(b.Insert(b.Context(), a)))
		_, err := b.Get(b.Context(), a.ID)
		require.True(b, errdefs.IsNotFound(err))
	}},
	{"a handle is given once", func(b *bench) {
		a := b.add("x", nil)
		require.Error(b, b.Insert(b.Context(), a))
		_, last, err := b.Delete(b.Context(), a.ID)
		require.NoError(b, err)
		require.True(b, last, "the refused registration must not count")
	}},
	{"an unknown handle is not found", func(b *bench) {
		for _, id := range []string{"", "x", "' OR 1=1 --"} {
			_, err := b.Get(b.Context(), id)
			require.True(b, errdefs.IsNotFound(err), "%q: %v", id, err)
			_, _, err = b.Delete(b.Context(), id)
			require.True(b, errdefs.IsNotFound(err), "%q: %v", id, err)
		}
	}},
	{"the last of a content is told", func(b *bench) {
		one, two := b.add("x", nil), b.add("x", nil)
		d, last, err := b.Delete(b.Context(), one.ID)
		require.NoError(b, err)
		require.False(b, last)
		require.Equal(b, digest("x"), d)
		require.Empty(b, b.garbage())
		_, last, err = b.Delete(b.Context(), two.ID)
		require.NoError(b, err)
		require.True(b, last)
		_, err = b.Get(b.Context(), two.ID)
		require.True(b, errdefs.IsNotFound(err))
	}},
}

// expiryChecks are about Expire.
var expiryChecks = []check{
	{"what is due goes, at most so many at once", func(b *bench) {
		for _, minutes := range []time.Duration{3, 1, 2} {
			b.add("x", func(a *artifacts.Artifact) { a.ExpiresAt = noon.Add(minutes * time.Minute) })
		}
		forever := b.add("x", func(a *artifacts.Artifact) { a.ExpiresAt = time.Time{} })
		for _, c := range []struct{ minute, limit, removed int }{{0, 9, 0}, {2, 1, 1}, {2, 9, 1}, {2, 9, 0}, {600, 9, 1}, {600, 9, 0}} {
			removed, err := b.Expire(b.Context(), noon.Add(time.Duration(c.minute)*time.Minute), c.limit)
			require.NoError(b, err)
			require.Equal(b, c.removed, removed, "%+v", c)
		}
		require.Empty(b, b.garbage(), "one is still there")
		_, last, err := b.Delete(b.Context(), forever.ID)
		require.NoError(b, err)
		require.True(b, last, "each that went was counted")
	}},
	{"the content of what is due is garbage", func(b *bench) {
		b.add("x", nil)
		removed, err := b.Expire(b.Context(), noon.Add(time.Hour), 9)
		require.NoError(b, err)
		require.Equal(b, 1, removed)
		require.Equal(b, []artifacts.Digest{digest("x")}, b.garbage())
	}},
}
