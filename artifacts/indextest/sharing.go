package indextest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
)

// sharingChecks are about several users at once.
var sharingChecks = []check{
	{"another handle sees it at once", func(b *bench) {
		other := b.again()
		a := b.add("x", nil)
		got, err := other.Get(b.Context(), a.ID)
		require.NoError(b, err)
		require.Equal(b, a, got)
		_, last, err := other.Delete(b.Context(), a.ID)
		require.NoError(b, err)
		require.True(b, last)
		require.Equal(b, []artifacts.Digest{digest("x")}, b.garbage())
	}},
	{"many at once count right", func(b *bench) {
		indexes := []artifacts.Index{b.Index, b.again()}
		const each = 10
		var lasts atomic.Int64
		var wg sync.WaitGroup
		for worker := range 16 {
			wg.Go(func() {
				for i := range each {
					a := (&bench{made: worker*each + i}).next("same")
					last, err := comeAndGo(b.Context(), indexes[worker%2], a)
					if err != nil {
						b.Error(err)
					}
					if last {
						lasts.Add(1)
					}
				}
			})
		}
		wg.Wait()
		require.Positive(b, lasts.Load())
		require.Equal(b, int64(len("same")), b.usage())
		require.Equal(b, []artifacts.Digest{digest("same")}, b.garbage())
	}},
	{"the quota holds when many come at once", func(b *bench) {
		indexes := []artifacts.Index{b.Index, b.again()}
		var fitted atomic.Int64
		var wg sync.WaitGroup
		for worker := range 16 {
			wg.Go(func() {
				if indexes[worker%2].Reserve(b.Context(), digest(fmt.Sprint(worker)), 10, 55) == nil {
					fitted.Add(1)
				}
			})
		}
		wg.Wait()
		require.Equal(b, int64(5), fitted.Load())
		require.Equal(b, int64(50), b.usage())
	}},
	{"an ended context changes nothing", func(b *bench) {
		a := b.add("x", nil)
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		_, _, err := b.Delete(ctx, a.ID)
		require.ErrorIs(b, err, context.Canceled)
		require.ErrorIs(b, b.Reserve(ctx, digest("y"), 1, noLimit), context.Canceled)
		_, err = b.Get(b.Context(), a.ID)
		require.NoError(b, err)
		require.Equal(b, int64(1), b.usage())
	}},
}

// comeAndGo registers an artifact and deletes it again.
func comeAndGo(ctx context.Context, x artifacts.Index, a artifacts.Artifact) (last bool, err error) {
	if err := register(ctx, x, a); err != nil {
		return false, err
	}
	if _, err := x.Get(ctx, a.ID); err != nil {
		return false, err
	}
	_, last, err = x.Delete(ctx, a.ID)
	return last, err
}
