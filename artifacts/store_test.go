package artifacts_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
	"mcpx/artifacts/sqlite"
	"mcpx/orchestrator/run"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("MCPX_TEST_VICTIM"); dir != "" {
		beVictim(dir)
	}
	os.Exit(m.Run())
}

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

// files lists what lies below the store, without its lock.
func files(t testing.TB, dir string) []string {
	t.Helper()
	var all []string
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, "store"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "lock" {
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
		"over quota":             {artifacts.Meta{Name: "x", Size: -1}, "abc", artifacts.CodeQuotaExceeded},
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
	require.Equal(t, 1, gone)
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

// Writers of the same content race with those who delete it: whoever has a
// handle must find the content.
func TestDeleteNeverTakesAFreshContent(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, artifacts.Options{})
	var wg sync.WaitGroup
	for range 8 {
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
			}
		})
	}
	wg.Wait()
	require.Empty(t, files(t, dir))
}

// A disk of one megabyte: what does not fit is told as that, and leaves nothing.
func TestFullDiskIsToldApart(t *testing.T) {
	if os.Getuid() != 0 {
		t.Log("a small disk can only be mounted by root; the other cases stand")
		return
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "store"), 0o700))
	require.NoError(t, syscall.Mount("tmpfs", filepath.Join(dir, "store"), "tmpfs", 0, "size=1m"))
	defer syscall.Unmount(filepath.Join(dir, "store"), syscall.MNT_DETACH)
	s := open(t, dir, artifacts.Options{})
	_, err := tryPut(t.Context(), s, artifacts.Meta{Name: "big", Size: -1}, strings.Repeat("x", 2<<20))
	var known *run.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, artifacts.CodeDiskFull, known.Code)
	require.Empty(t, files(t, dir))
	put(t, s, "small", "x")
}

// beVictim stores artifacts until it is killed, and tells of each that it committed.
func beVictim(dir string) {
	index, err := sqlite.Open(filepath.Join(dir, "index.db"))
	if err != nil {
		panic(err)
	}
	s, err := artifacts.Open(filepath.Join(dir, "store"), index, artifacts.Options{})
	if err != nil {
		panic(err)
	}
	for i := 0; ; i++ {
		a, err := tryPut(context.Background(), s, artifacts.Meta{Name: "x", Size: -1}, strings.Repeat(fmt.Sprint(os.Getpid(), i), 5000))
		if err != nil {
			panic(err)
		}
		fmt.Println(a.ID)
	}
}

func TestKilledWriterLosesNothingThatItCommitted(t *testing.T) {
	dir := t.TempDir()
	var committed []string
	for range 10 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "MCPX_TEST_VICTIM="+dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for n := 1 + rand.IntN(12); n > 0 && lines.Scan(); n-- {
			committed = append(committed, lines.Text())
		}
		require.NoError(t, cmd.Process.Kill())
		for lines.Scan() { // what it told before the signal came
			committed = append(committed, lines.Text())
		}
		cmd.Wait()
	}
	s := open(t, dir, artifacts.Options{})
	for _, id := range committed {
		if len(id) != 32 {
			continue // its last line was cut
		}
		a, f, err := s.OpenBlob(t.Context(), id)
		require.NoError(t, err)
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		require.NoError(t, err)
		f.Close()
		require.Equal(t, a.SHA256, hex.EncodeToString(sum.Sum(nil)))
	}
	require.NotEmpty(t, committed)
	for _, path := range files(t, dir) {
		require.Contains(t, path, "/store/blobs/", "half-written")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		sum := sha256.Sum256(text)
		digest := hex.EncodeToString(sum[:])
		require.True(t, bytes.HasSuffix([]byte(path), []byte(filepath.Join(digest[:2], digest[2:]))), "%s looks whole and is not", path)
	}
}
