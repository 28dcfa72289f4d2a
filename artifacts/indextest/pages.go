package indextest

import (
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
)

// titles walks all pages of a listing and yields the titles, page by page.
func (b *bench) titles(f artifacts.Filter) []string {
	b.Helper()
	var pages []string
	for {
		page, next, err := b.List(b.Context(), noon, f)
		require.NoError(b, err)
		var titles []string
		for _, a := range page {
			titles = append(titles, a.Title)
		}
		pages = append(pages, strings.Join(titles, " "))
		if f.After = next; next == "" {
			return pages
		}
	}
}

func titled(title string) func(*artifacts.Artifact) {
	return func(a *artifacts.Artifact) { a.Title = title }
}

// pageChecks are about List.
var pageChecks = []check{
	{"the newest is first, and pages join without gap or overlap", func(b *bench) {
		require.Equal(b, []string{""}, b.titles(artifacts.Filter{}))
		for i := range 5 {
			b.add("x", titled(fmt.Sprint(i)))
		}
		require.Equal(b, []string{"4 3", "2 1", "0"}, b.titles(artifacts.Filter{Limit: 2}))
		require.Equal(b, []string{"4 3 2 1 0"}, b.titles(artifacts.Filter{Limit: 5}))
		require.Equal(b, []string{"4 3 2 1 0"}, b.titles(artifacts.Filter{}))
	}},
	{"filters hold together", func(b *bench) {
		for _, run := range []string{"r1", "r2", ""} {
			for _, session := range []string{"s1", "s2", ""} {
				for _, principal := range []string{"p1", "p2"} {
					b.add("x", func(a *artifacts.Artifact) {
						a.Run, a.Session, a.Principal, a.Title = run, session, principal, run+session+principal
					})
				}
			}
		}
		for want, f := range map[string]artifacts.Filter{
			"r2p2 r2p1 r2s2p2 r2s2p1 r2s1p2 r2s1p1": {Run: "r2"},
			"s1p2 s1p1 r2s1p2 r2s1p1 r1s1p2 r1s1p1": {Session: "s1"},
			"r1s2p2 r1s2p1":                         {Run: "r1", Session: "s2"},
			"r1s2p1":                                {Run: "r1", Session: "s2", Principal: "p1"},
			"p1 s2p1 s1p1 r2p1 r2s2p1 r2s1p1 r1p1 r1s2p1 r1s1p1": {Principal: "p1"},
			"": {Principal: "p1", Run: "other"},
		} {
			require.Equal(b, []string{want}, b.titles(f))
		}
	}},
	{"what is due is not shown", func(b *bench) {
		b.add("x", func(a *artifacts.Artifact) { a.Title, a.ExpiresAt = "due", noon })
		b.add("x", func(a *artifacts.Artifact) { a.Title, a.ExpiresAt = "later", noon.Add(time.Microsecond) })
		b.add("x", func(a *artifacts.Artifact) { a.Title, a.ExpiresAt = "never", time.Time{} })
		require.Equal(b, []string{"never later"}, b.titles(artifacts.Filter{}))
	}},
	{"a page goes on where the one before ended, whatever was deleted and added", func(b *bench) {
		var made []artifacts.Artifact
		for i := range 5 {
			made = append(made, b.add("x", titled(fmt.Sprint(i))))
		}
		page, next, err := b.List(b.Context(), noon, artifacts.Filter{Limit: 2})
		require.NoError(b, err)
		for _, a := range append(page, made[2]) {
			_, _, err := b.Delete(b.Context(), a.ID)
			require.NoError(b, err)
		}
		b.add("x", titled("new"))
		require.Equal(b, []string{"1 0"}, b.titles(artifacts.Filter{Limit: 2, After: next}))
	}},
	{"an end of a page that is none of ours is refused", func(b *bench) {
		for _, after := range []string{"x", "-1", "1 OR 1=1", strings.Repeat("9", 5000), "1.5"} {
			_, _, err := b.List(b.Context(), noon, artifacts.Filter{After: after})
			require.True(b, errdefs.IsInvalidArgument(err), "%.40q: %v", after, err)
		}
	}},
	{"a page is bounded", func(b *bench) {
		for range artifacts.DefaultLimit + 1 {
			b.add("x", nil)
		}
		for _, limit := range []int{0, -5} {
			page, next, err := b.List(b.Context(), noon, artifacts.Filter{Limit: limit})
			require.NoError(b, err)
			require.Len(b, page, artifacts.DefaultLimit)
			require.NotEmpty(b, next)
		}
		page, _, err := b.List(b.Context(), noon, artifacts.Filter{Limit: 1 << 40})
		require.NoError(b, err)
		require.Len(b, page, artifacts.DefaultLimit+1)
	}},
}
