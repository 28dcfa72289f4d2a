package indextest

import (
	"errors"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
)

// contentChecks are about what is counted, from Reserve to Forget.
var contentChecks = []check{
	{"a content is counted once", func(b *bench) {
		require.Zero(b, b.usage())
		b.add("123456", nil)
		b.add("123456", nil)
		b.add("78", nil)
		require.Equal(b, int64(8), b.usage())
	}},
	{"a content that was only reserved is counted and garbage", func(b *bench) {
		require.NoError(b, b.Reserve(b.Context(), digest("123"), 3, noLimit))
		require.Equal(b, int64(3), b.usage())
		require.Equal(b, []artifacts.Digest{digest("123")}, b.garbage())
		b.add("123", nil)
		require.Empty(b, b.garbage())
	}},
	{"the quota may be reached and not passed", func(b *bench) {
		require.NoError(b, b.Reserve(b.Context(), digest("a"), 7, 10))
		err := b.Reserve(b.Context(), digest("b"), 4, 10)
		require.ErrorIs(b, err, artifacts.ErrQuota)
		require.True(b, errdefs.IsResourceExhausted(err))
		require.Equal(b, int64(7), b.usage())
		require.NoError(b, b.Reserve(b.Context(), digest("c"), 3, 10))
		require.NoError(b, b.Reserve(b.Context(), digest("a"), 7, 10), "it is counted already")
		require.NoError(b, b.Reserve(b.Context(), digest("empty"), 0, 10))
		require.ErrorIs(b, b.Reserve(b.Context(), digest("d"), 1, 5), artifacts.ErrQuota, "a quota may be lowered")
	}},
	{"only garbage is forgotten, after it was removed", func(b *bench) {
		a := b.add("1234", nil)
		d := digest("1234")
		size, gone, err := b.Forget(b.Context(), d, func() error {
			b.Error("a registered content was removed")
			return nil
		})
		require.NoError(b, err)
		require.False(b, gone)
		require.Zero(b, size)
		_, last, err := b.Delete(b.Context(), a.ID)
		require.NoError(b, err)
		require.True(b, last)
		require.Equal(b, int64(4), b.usage(), "the blob is still there")
		require.Equal(b, []artifacts.Digest{d}, b.garbage())

		broken := errors.New("can't be removed")
		_, gone, err = b.Forget(b.Context(), d, func() error { return broken })
		require.ErrorIs(b, err, broken)
		require.False(b, gone)
		require.Equal(b, int64(4), b.usage())

		removed := 0
		size, gone, err = b.Forget(b.Context(), d, func() error { removed++; return nil })
		require.NoError(b, err)
		require.True(b, gone)
		require.Equal(b, int64(4), size)
		require.Equal(b, 1, removed)
		require.Zero(b, b.usage())
		require.Empty(b, b.garbage())
	}},
	{"what nobody counts is not forgotten", func(b *bench) {
		_, gone, err := b.Forget(b.Context(), digest("x"), func() error {
			b.Error("an unknown content was removed")
			return nil
		})
		require.NoError(b, err)
		require.False(b, gone)
	}},
	{"garbage comes in bounded amounts", func(b *bench) {
		for _, content := range []string{"a", "b", "c"} {
			require.NoError(b, b.Reserve(b.Context(), digest(content), 1, noLimit))
		}
		digests, err := b.Garbage(b.Context(), 2)
		require.NoError(b, err)
		require.Len(b, digests, 2)
	}},
}
