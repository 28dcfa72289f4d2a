package artifacts_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
	"mcpx/artifacts/sqlite"
	"mcpx/orchestrator/run"
)

func open(t testing.TB, dir string, o artifacts.Options) *artifacts.Store {
	t.Helper()
	index, err := sqlite.Open(filepath.Join(dir, "index.db"))
	require.NoError(t, err)
	t.Cleanup(func() { index.Close() })
	s, err := artifacts.Open(filepath.Join(dir, "store"), index, o)
	require.NoError(t, err)
	return s
}

func put(t testing.TB, s *artifacts.Store, name, content string) artifacts.Artifact {
	t.Helper()
	a, err := tryPut(t.Context(), s, artifacts.Meta{Name: name, Size: -1}, content)
	require.NoError(t, err)
	return a
}

func tryPut(ctx context.Context, s *artifacts.Store, m artifacts.Meta, content string) (artifacts.Artifact, error) {
	w, err := s.Create(ctx, m)
	if err != nil {
		return artifacts.Artifact{}, err
	}
	defer w.Abort()
	if _, err := io.WriteString(w, content); err != nil {
		return artifacts.Artifact{}, err
	}
	return w.Commit()
}

// files lists what lies below the store.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, "store"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return err
	}))
	return all
}

func TestContentComesBackWhole(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, artifacts.Options{})
	a := put(t, s, "../測試 file.csv", "a,b\n1,2\n")
	sum := sha256.Sum256([]byte("a,b\n1,2\n"))
	require.Equal(t, hex.EncodeToString(sum[:]), a.SHA256)
	require.Equal(t, "__-file.csv", a.Name)
	require.Equal(t, "測試 file.csv", a.Title)
	require.Equal(t, "text/csv", a.MIME)
	require.Len(t, a.ID, 32)
	require.NotContains(t, a.SHA256, a.ID)
	require.Equal(t, "mcpx://artifacts/"+a.ID, a.Ref().URI)

	got, f, err := s.OpenBlob(t.Context(), a.ID)
	require.NoError(t, err)
	defer f.Close()
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "a,b\n1,2\n", string(text))
	require.Equal(t, a.Ref(), got.Ref())
	info, err := f.Stat()
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o400), info.Mode().Perm())
}

func TestEmptyFileIsAnArtifact(t *testing.T) {
	s := open(t, t.TempDir(), artifacts.Options{})
	a := put(t, s, "empty", "")
	require.Zero(t, a.Size)
}

func TestSameContentIsKeptOnceAndGoesWithItsLastHandle(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, artifacts.Options{Quota: 10})
	one, two := put(t, s, "a", "123456"), put(t, s, "b", "123456")
	require.NotEqual(t, one.ID, two.ID)
	require.Len(t, files(t, dir), 1)
	used, err := s.Usage(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(6), used)

	require.NoError(t, s.Delete(t.Context(), one.ID))
	_, f, err := s.OpenBlob(t.Context(), two.ID)
	require.NoError(t, err)
	require.NoError(t, s.Delete(t.Context(), two.ID))
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "123456", string(text), "a reader keeps what it has open")
	f.Close()
	require.Empty(t, files(t, dir))
	require.True(t, errdefs.IsNotFound(s.Delete(t.Context(), two.ID)))
	used, err = s.Usage(t.Context())
	require.NoError(t, err)
	require.Zero(t, used)
}

func TestLimitsAreErrorsAndLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, artifacts.Options{MaxBytes: 8, Quota: 10})
	put(t, s, "fits", "12345678")
	for name, c := range map[string]struct {
		meta    artifacts.Meta
		content string
		code    string
	}{
		"one byte too large":     {artifacts.Meta{Name: "x", Size: -1}, "123456789", run.CodeTooLarge},
		"announced too large":    {artifacts.Meta{Name: "x", Size: 9}, "", run.CodeTooLarge},
		"shorter than announced": {artifacts.Meta{Name: "x", Size: 5}, "123", run.CodeInvalidRequest},
		"longer than announced":  {artifacts.Meta{Name: "x", Size: 2}, "123", run.CodeInvalidRequest},
		"over quota":             {artifacts.Meta{Name: "x", Size: -1}, "abc", run.CodeQuotaExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tryPut(t.Context(), s, c.meta, c.content)
			var known *run.Error
			require.ErrorAs(t, err, &known)
			require.Equal(t, c.code, known.Code)
			require.Len(t, files(t, dir), 1)
		})
	}
	put(t, s, "again", "12345678") // known content is free
}

func TestAbortedWriterLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, artifacts.Options{})
	w, err := s.Create(t.Context(), artifacts.Meta{Name: "x", Size: -1})
	require.NoError(t, err)
	_, err = w.Write([]byte("half"))
	require.NoError(t, err)
	open(t, dir, artifacts.Options{}) // another process begins: it must not take this file for a dead one's
	require.Len(t, files(t, dir), 1)
	w.Abort()
	w.Abort()
	require.Empty(t, files(t, dir))
	_, err = w.Commit()
	require.True(t, errdefs.IsFailedPrecondition(err))
}

func TestUnknownHandlesAreNotFound(t *testing.T) {
	s := open(t, t.TempDir(), artifacts.Options{})
	for _, id := range []string{"", "x", "../../etc/passwd", strings.Repeat("0", 32), strings.Repeat("A", 32), strings.Repeat("a", 64), "\x00"} {
		_, err := s.Get(t.Context(), id)
		require.True(t, errdefs.IsNotFound(err), "%q", id)
		_, _, err = s.OpenBlob(t.Context(), id)
		require.True(t, errdefs.IsNotFound(err), "%q", id)
		require.True(t, errdefs.IsNotFound(s.Delete(t.Context(), id)), "%q", id)
	}
}

func TestTimeIsUp(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	s := open(t, dir, artifacts.Options{TTL: time.Hour, Now: func() time.Time { return now }})
	short, long := put(t, s, "a", "a"), func() artifacts.Artifact {
		a, err := tryPut(t.Context(), s, artifacts.Meta{Name: "b", Size: 1, TTL: 3 * time.Hour}, "b")
		require.NoError(t, err)
		return a
	}()
	now = now.Add(2 * time.Hour)
	_, err := s.Get(t.Context(), short.ID)
	require.True(t, errdefs.IsNotFound(err), "also before the collector came by")
	gone, err := s.GC(t.Context())
	require.NoError(t, err)
	require.Equal(t, artifacts.Report{Expired: 1, Contents: 1, Bytes: 1}, gone)
	page, _, err := s.List(t.Context(), artifacts.Filter{})
	require.NoError(t, err)
	require.Equal(t, []artifacts.Artifact{long}, page)
	_, err = s.Get(t.Context(), long.ID)
	require.NoError(t, err)
	require.Len(t, files(t, dir), 1)
}

func TestListPages(t *testing.T) {
	s := open(t, t.TempDir(), artifacts.Options{})
	for i := range 5 {
		_, err := tryPut(t.Context(), s, artifacts.Meta{Name: fmt.Sprint(i), Size: 1, Run: "r", Session: "s", Principal: "p"}, fmt.Sprint(i))
		require.NoError(t, err)
	}
	put(t, s, "other", "o")
	var names []string
	f := artifacts.Filter{Run: "r", Principal: "p", Session: "s", Limit: 2}
	for {
		page, next, err := s.List(t.Context(), f)
		require.NoError(t, err)
		for _, a := range page {
			names = append(names, a.Name)
		}
		if f.After = next; next == "" {
			break
		}
	}
	require.Equal(t, []string{"4", "3", "2", "1", "0"}, names)
}

func TestNegativeTTLNeverEnds(t *testing.T) {
	now := time.Now()
	s := open(t, t.TempDir(), artifacts.Options{Now: func() time.Time { return now }})
	a, err := tryPut(t.Context(), s, artifacts.Meta{Name: "b", Size: 1, TTL: -1}, "b")
	require.NoError(t, err)
	require.Zero(t, a.ExpiresAt)
	now = now.AddDate(100, 0, 0)
	report, err := s.GC(t.Context())
	require.NoError(t, err)
	require.Zero(t, report)
	_, err = s.Get(t.Context(), a.ID)
	require.NoError(t, err)
}

// What is only waiting for the collector must not keep anyone from storing.
func TestWhatIsDueMakesRoomUnderTheQuota(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	s := open(t, dir, artifacts.Options{Quota: 4, TTL: time.Hour, Now: func() time.Time { return now }})
	put(t, s, "old", "1234")
	_, err := tryPut(t.Context(), s, artifacts.Meta{Name: "new", Size: -1}, "5678")
	require.True(t, errdefs.IsResourceExhausted(err))
	now = now.Add(time.Hour)
	put(t, s, "new", "5678")
	require.Len(t, files(t, dir), 1)
}

// A reader that has begun reads on, whatever the collector does.
func TestReaderOutlivesTheCollector(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	s := open(t, dir, artifacts.Options{TTL: time.Hour, Now: func() time.Time { return now }})
	a := put(t, s, "a", "still here")
	_, f, err := s.OpenBlob(t.Context(), a.ID)
	require.NoError(t, err)
	defer f.Close()
	now = now.Add(time.Hour)
	_, err = s.GC(t.Context())
	require.NoError(t, err)
	require.Empty(t, files(t, dir))
	text, err := io.ReadAll(f)
	require.NoError(t, err)
	require.Equal(t, "still here", string(text))
}

// Whoever goes on after an error must not end up with a shortened file.
func TestFailedWriteCannotBeCommitted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, artifacts.Options{MaxBytes: 4})
	for _, size := range []int64{-1, 3} {
		w, err := s.Create(t.Context(), artifacts.Meta{Name: "x", Size: size})
		require.NoError(t, err)
		_, err = w.Write([]byte("123"))
		require.NoError(t, err)
		_, refused := w.Write([]byte("45"))
		require.Error(t, refused)
		_, err = w.Write(nil)
		require.Equal(t, refused, err)
		_, err = w.Commit()
		require.Equal(t, refused, err)
		require.Empty(t, files(t, dir))
	}
}

// A run whose context has ended registers nothing, and its blob goes again.
func TestCommitBelongsToItsContext(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, artifacts.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	w, err := s.Create(ctx, artifacts.Meta{Name: "x", Size: -1})
	require.NoError(t, err)
	cancel()
	_, err = w.Commit()
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, files(t, dir))
}

func TestDamagedContentIsNotHandedOut(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, artifacts.Options{})
	a := put(t, s, "x", "123456")
	path := files(t, dir)[0]
	require.NoError(t, os.Truncate(path, 3))
	_, _, err := s.OpenBlob(t.Context(), a.ID)
	require.True(t, errdefs.IsDataLoss(err), "%v", err)
	require.NoError(t, os.Remove(path))
	_, _, err = s.OpenBlob(t.Context(), a.ID)
	require.True(t, errdefs.IsDataLoss(err), "%v", err)

	put(t, s, "again", "123456") // the same content, stored again, mends it
	_, f, err := s.OpenBlob(t.Context(), a.ID)
	require.NoError(t, err)
	f.Close()
	require.NoError(t, os.Remove(path))
	require.NoError(t, s.Delete(t.Context(), a.ID), "what is missing can be deleted")
}

func TestHandlesAreRandomAndSaySoOfNothing(t *testing.T) {
	s := open(t, t.TempDir(), artifacts.Options{})
	seen := map[string]bool{}
	for range 50 {
		id := put(t, s, "x", "same").ID
		_, err := artifacts.ParseID(id)
		require.NoError(t, err)
		seen[id[:8]], seen[id[len(id)-8:]] = true, true
	}
	require.Len(t, seen, 100, "no part of a handle comes twice")
}

// Sixteen write the same content at once, through two stores on one directory
// as two processes would.
func TestSameContentBySixteenAtOnce(t *testing.T) {
	dir := t.TempDir()
	stores := []*artifacts.Store{open(t, dir, artifacts.Options{}), open(t, dir, artifacts.Options{})}
	content := strings.Repeat("x", 100_000)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			a, err := tryPut(t.Context(), stores[i%2], artifacts.Meta{Name: "x", Size: -1}, content)
			if err != nil {
				t.Error(err)
				return
			}
			_, f, err := stores[(i+1)%2].OpenBlob(t.Context(), a.ID)
			if err != nil {
				t.Error(err)
				return
			}
			f.Close()
		})
	}
	wg.Wait()
	require.Len(t, files(t, dir), 1)
	used, err := stores[0].Usage(t.Context())
	require.NoError(t, err)
	require.Equal(t, int64(len(content)), used)
}

// Writers of the same content race with those who delete it: whoever has a
// handle must find the content.
func TestDeleteNeverTakesAFreshContent(t *testing.T) {
	dir := t.TempDir()
	stores := []*artifacts.Store{open(t, dir, artifacts.Options{}), open(t, dir, artifacts.Options{})}
	var wg sync.WaitGroup
	for i := range 8 {
		s := stores[i%2]
		wg.Go(func() {
			for range 20 {
				a, err := tryPut(t.Context(), s, artifacts.Meta{Name: "x", Size: -1}, "same")
				if err != nil {
					t.Error(err)
					return
				}
				_, f, err := s.OpenBlob(t.Context(), a.ID)
				if err != nil {
					t.Errorf("committed and not there: %v", err)
					return
				}
				f.Close()
				if err := s.Delete(t.Context(), a.ID); err != nil {
					t.Error(err)
				}
				if _, err := s.GC(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Empty(t, files(t, dir))
}
