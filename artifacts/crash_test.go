package artifacts_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
	"mcpx/artifacts/sqlite"
)

// The test's own binary is also the process that is killed; these say what it does.
const (
	childEnv = "MCPX_TEST_CHILD"
	dirEnv   = "MCPX_TEST_DIR"
	stepEnv  = "MCPX_TEST_STEP"
	textEnv  = "MCPX_TEST_TEXT"
)

func TestMain(m *testing.M) {
	children := map[string]func(dir string) error{"busy": beBusy, "dying": dieAtStep, "limited": writeTooMuch}
	child, ok := children[os.Getenv(childEnv)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := child(os.Getenv(dirEnv)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(t *testing.T, kind, dir string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(append(os.Environ(), childEnv+"="+kind, dirEnv+"="+dir), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// openIn is open for a child.
func openIn(dir string, wrap func(artifacts.Index) artifacts.Index) (*artifacts.Store, error) {
	index, err := sqlite.Open(filepath.Join(dir, "index.db"))
	if err != nil {
		return nil, err
	}
	return artifacts.Open(filepath.Join(dir, "store"), wrap(index), artifacts.Options{})
}

// requireSound opens the store as the next process would and holds it to what
// it promises: every registration has its content whole, nothing else lies
// there, and what is counted is what is there.
func requireSound(t *testing.T, dir string) map[string]artifacts.Artifact {
	t.Helper()
	s := open(t, dir, artifacts.Options{})
	_, err := s.GC(t.Context())
	require.NoError(t, err)
	all, next, err := s.List(t.Context(), artifacts.Filter{Limit: artifacts.MaxLimit})
	require.NoError(t, err)
	require.Empty(t, next)
	byID, paths, total := map[string]artifacts.Artifact{}, map[string]bool{}, int64(0)
	for _, a := range all {
		_, f, err := s.OpenBlob(t.Context(), a.ID)
		require.NoError(t, err)
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		require.Equal(t, a.SHA256, hex.EncodeToString(sum.Sum(nil)))
		if path := filepath.Join(dir, "store", "blobs", a.SHA256[:2], a.SHA256[2:]); !paths[path] {
			paths[path] = true
			total += a.Size
		}
		byID[a.ID] = a
	}
	for _, path := range files(t, dir) {
		require.True(t, paths[path], "%s belongs to nothing", path)
	}
	used, err := s.Usage(t.Context())
	require.NoError(t, err)
	require.Equal(t, total, used)
	return byID
}

// dying is an index whose process is killed at one step.
type dying struct {
	artifacts.Index
	step string
}

func (d dying) at(step string) {
	if d.step == step {
		syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:errcheck // it ends us
		select {}
	}
}

func (d dying) Reserve(ctx context.Context, digest artifacts.Digest, size, quota int64) error {
	d.at("before reserve")
	defer d.at("after reserve")
	return d.Index.Reserve(ctx, digest, size, quota)
}

func (d dying) Insert(ctx context.Context, a artifacts.Artifact) error {
	d.at("before insert")
	defer d.at("after insert")
	return d.Index.Insert(ctx, a)
}

func (d dying) Delete(ctx context.Context, id string) (artifacts.Digest, bool, error) {
	d.at("before delete")
	defer d.at("after delete")
	return d.Index.Delete(ctx, id)
}

func (d dying) Forget(ctx context.Context, digest artifacts.Digest, remove func() error) (int64, bool, error) {
	d.at("before forget")
	defer d.at("after forget")
	return d.Index.Forget(ctx, digest, func() error {
		d.at("before remove")
		defer d.at("after remove")
		return remove()
	})
}

// dieAtStep stores and deletes one artifact, unless it is killed before.
func dieAtStep(dir string) error {
	d := dying{step: os.Getenv(stepEnv)}
	s, err := openIn(dir, func(x artifacts.Index) artifacts.Index {
		d.Index = x
		return d
	})
	if err != nil {
		return err
	}
	w, err := s.Create(context.Background(), artifacts.Meta{Name: "own", Size: -1})
	if err != nil {
		return err
	}
	for _, half := range []string{os.Getenv(textEnv), "-end"} {
		if _, err := io.WriteString(w, half); err != nil {
			return err
		}
		d.at("half written")
	}
	a, err := w.Commit()
	if err != nil {
		return err
	}
	return s.Delete(context.Background(), a.ID)
}

func TestKilledAtAnyStepLosesAndLeavesNothing(t *testing.T) {
	for _, step := range []struct {
		name       string
		registered bool // the artifact was committed and not yet deleted
		last       bool // only reached when nothing else has the content
	}{
		{name: "half written"},
		{name: "before reserve"}, {name: "after reserve"},
		{name: "before insert"}, {name: "after insert", registered: true},
		{name: "before delete", registered: true}, {name: "after delete"},
		{name: "before forget", last: true}, {name: "before remove", last: true},
		{name: "after remove", last: true}, {name: "after forget", last: true},
	} {
		for _, content := range []string{"own", "kept"} {
			if step.last && content == "kept" {
				continue
			}
			t.Run(step.name+" of "+content, func(t *testing.T) {
				dir := t.TempDir()
				kept := put(t, open(t, dir, artifacts.Options{}), "kept", "kept-end")
				cmd := child(t, "dying", dir, stepEnv+"="+step.name, textEnv+"="+content)
				require.EqualError(t, cmd.Run(), "signal: killed")
				left := requireSound(t, dir)
				require.Equal(t, kept, left[kept.ID])
				delete(left, kept.ID)
				require.Equal(t, step.registered, len(left) == 1, "%v", left)
			})
		}
	}
}

// beBusy stores and deletes until it is killed. It tells "+ID" of what it has
// committed, and "-ID" before it deletes.
func beBusy(dir string) error {
	s, err := openIn(dir, func(x artifacts.Index) artifacts.Index { return x })
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				if err := busyRound(s); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

func busyRound(s *artifacts.Store) error {
	content := strings.Repeat(fmt.Sprint(rand.IntN(5)), 5000) // several have it
	if rand.IntN(2) == 0 {
		content = strings.Repeat(fmt.Sprint(rand.Uint64()), 5000)
	}
	a, err := tryPut(context.Background(), s, artifacts.Meta{Name: "x", Size: -1}, content)
	if err != nil {
		return err
	}
	os.Stdout.WriteString("+" + a.ID + "\n") //nolint:errcheck // we are about to be killed
	if rand.IntN(3) == 0 {
		return nil
	}
	os.Stdout.WriteString("-" + a.ID + "\n") //nolint:errcheck // as above
	return s.Delete(context.Background(), a.ID)
}

func TestKilledAtAnyMomentLosesAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	committed, deleting := map[string]bool{}, map[string]bool{}
	for range 15 {
		cmd := child(t, "busy", dir)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		lines := bufio.NewScanner(out)
		killAfter := 1 + rand.IntN(25)
		for n := 1; lines.Scan(); n++ { // also what it told before the signal came
			told := committed
			if line := lines.Text(); line[0] == '-' {
				told = deleting
			}
			told[lines.Text()[1:]] = true
			if n == killAfter {
				require.NoError(t, cmd.Process.Kill())
			}
		}
		require.EqualError(t, cmd.Wait(), "signal: killed")
		left := requireSound(t, dir)
		for id := range committed {
			if !deleting[id] {
				require.Contains(t, left, id)
			}
		}
	}
	require.NotEmpty(t, committed)
	require.NotEmpty(t, deleting)
}
