package script_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/script"
)

// tree writes files below a fresh directory; a name that ends in / is a directory.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for name, text := range files {
		path := filepath.Join(root, name)
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(path, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	return root
}

func refused(t *testing.T, err error, code string, class error, field string) *run.Error {
	t.Helper()
	var known *run.Error
	require.ErrorAs(t, err, &known)
	require.Equal(t, code, known.Code)
	require.ErrorIs(t, err, class)
	require.Equal(t, field, known.Field)
	return known
}

func TestSourceIsTheText(t *testing.T) {
	s, err := script.Resolver{}.Resolve(run.Request{Source: "print(1)"}, "")
	require.NoError(t, err)
	require.Equal(t, script.Script{Text: []byte("print(1)")}, s)
}

func TestSourceAndFileExcludeEachOther(t *testing.T) {
	_, err := script.Resolver{}.Resolve(run.Request{Source: "x", File: "y"}, "")
	refused(t, err, run.CodeInvalidRequest, errdefs.ErrInvalidArgument, "file")
	_, err = script.Resolver{}.Resolve(run.Request{}, "")
	refused(t, err, run.CodeInvalidRequest, errdefs.ErrInvalidArgument, "source")
}

func TestTextThatIsNoProgram(t *testing.T) {
	root := tree(t, map[string]string{"nul.py": "a\x00b", "latin.py": "\xe9", "utf16.py": "\xff\xfea\x00"})
	for _, c := range []struct {
		req   run.Request
		field string
	}{
		{run.Request{Source: "a\x00b"}, "source"}, {run.Request{Source: "\xe9"}, "source"},
		{run.Request{File: "./nul.py"}, "file"}, {run.Request{File: "./latin.py"}, "file"}, {run.Request{File: "./utf16.py"}, "file"},
	} {
		_, err := script.Resolver{}.Resolve(c.req, root)
		refused(t, err, run.CodeInvalidScript, errdefs.ErrInvalidArgument, c.field)
	}
}

func TestSizeLimit(t *testing.T) {
	most := strings.Repeat("#", script.MaxBytes)
	root := tree(t, map[string]string{"most.sh": most, "more.sh": most + "#", "empty.sh": ""})
	for file, size := range map[string]int{"./most.sh": script.MaxBytes, "./empty.sh": 0} {
		s, err := script.Resolver{}.Resolve(run.Request{File: file}, root)
		require.NoError(t, err)
		require.Len(t, s.Text, size)
	}
	_, err := script.Resolver{}.Resolve(run.Request{File: "./more.sh"}, root)
	refused(t, err, run.CodeTooLarge, errdefs.ErrOutOfRange, "file")
	_, err = script.Resolver{}.Resolve(run.Request{Source: most + "#"}, root)
	refused(t, err, run.CodeTooLarge, errdefs.ErrOutOfRange, "source")
}

func TestPathsAreUsedAsWritten(t *testing.T) {
	root := tree(t, map[string]string{"a/b.py": "b", "c.py": "c", "a/.mcpx/scripts/d.py": "d", "plain": "p"})
	r := script.Resolver{Extensions: []string{".py"}}
	for file, want := range map[string]string{
		"b.py": "a/b.py", "./b.py": "a/b.py", "B.PY": "", "../c.py": "c.py", "../plain": "plain",
		filepath.Join(root, "c.py"): "c.py", root + "/a/../c.py": "c.py",
		"d.py": "", "./d": "", "./b": "",
	} {
		s, err := r.Resolve(run.Request{File: file}, filepath.Join(root, "a"))
		if want == "" {
			e := refused(t, err, run.CodeScriptNotFound, errdefs.ErrNotFound, "file")
			require.Len(t, e.Searched, 1)
			continue
		}
		require.NoError(t, err, file)
		require.Equal(t, filepath.Join(root, want), s.Path)
		require.Equal(t, filepath.Base(want), s.Name)
		require.Equal(t, filepath.Dir(filepath.Join(root, want)), s.Dir)
	}
}

func TestRelativePathNeedsTheCallersDirectory(t *testing.T) {
	_, err := script.Resolver{}.Resolve(run.Request{File: "./x"}, "")
	refused(t, err, run.CodeInvalidOption, errdefs.ErrInvalidArgument, "options.cwd")
	_, err = script.Resolver{}.Resolve(run.Request{File: "x"}, "not/absolute")
	refused(t, err, run.CodeInvalidOption, errdefs.ErrInvalidArgument, "options.cwd")
}

func TestNamesAreSearchedFromCwdUpThenTheUsers(t *testing.T) {
	root := tree(t, map[string]string{
		"p/q/.config/mcpx/scripts/near.py": "1", "p/.mcpx/scripts/near.py": "far", "p/.mcpx/scripts/up.sh": "2",
		"p/q/.mcpx/scripts/both": "mcpx", "p/q/.config/mcpx/scripts/both": "config",
		"home/scripts/mine.py": "3", "home/scripts/up.sh": "user", "p/.mcpx/scripts/report.v2.py": "4", "p/.mcpx/scripts/dir/": "", "home/scripts/dir.py": "5",
	})
	r := script.Resolver{UserDir: filepath.Join(root, "home/scripts"), Extensions: []string{".py", ".sh"}}
	for name, want := range map[string]string{"near": "1", "up": "2", "mine": "3", "both": "mcpx", "report.v2": "4", "dir": "5"} {
		s, err := r.Resolve(run.Request{File: name}, filepath.Join(root, "p/q"))
		require.NoError(t, err, name)
		require.Equal(t, want, string(s.Text), name)
	}
}

func TestAMissNamesEveryPlace(t *testing.T) {
	r := script.Resolver{UserDir: "/home/u/.config/mcpx/scripts", Extensions: []string{".py"}}
	_, err := r.Resolve(run.Request{File: "nope"}, "/no/such dir/")
	e := refused(t, err, run.CodeScriptNotFound, errdefs.ErrNotFound, "file")
	require.Equal(t, []string{
		"/no/such dir/.mcpx/scripts", "/no/such dir/.config/mcpx/scripts", "/no/.mcpx/scripts", "/no/.config/mcpx/scripts",
		"/.mcpx/scripts", "/.config/mcpx/scripts", "/home/u/.config/mcpx/scripts",
	}, e.Searched)
	require.Contains(t, e.Hint, "mkdir -p '/no/such dir/.mcpx/scripts'")
	_, err = script.Resolver{}.Resolve(run.Request{File: "nope"}, "")
	e = refused(t, err, run.CodeScriptNotFound, errdefs.ErrNotFound, "file")
	require.NotEmpty(t, e.Hint)
}

func TestFilesThatDifferInTheirExtensionAreAmbiguous(t *testing.T) {
	root := tree(t, map[string]string{".mcpx/scripts/x.py": "", ".mcpx/scripts/x.sh": "", ".mcpx/scripts/y": "", ".mcpx/scripts/y.py": ""})
	r := script.Resolver{Extensions: []string{".py", ".sh"}}
	for _, name := range []string{"x", "y"} {
		_, err := r.Resolve(run.Request{File: name}, root)
		e := refused(t, err, run.CodeAmbiguousScript, errdefs.ErrInvalidArgument, "file")
		require.Contains(t, e.Message, filepath.Join(root, ".mcpx/scripts", name+".py"))
		require.Contains(t, e.Message, " and ")
	}
}

func TestPathsReplaceThePlacesAndNullSplicesThemIn(t *testing.T) {
	root := tree(t, map[string]string{"own/a.py": "own", "rel/c.py": "rel", "w/.mcpx/scripts/a.py": "builtin", "w/.mcpx/scripts/b.py": "b", "w/rel/c.py": "relative"})
	own, rel := filepath.Join(root, "own"), "rel"
	for name, c := range map[string]struct {
		paths []*string
		want  map[string]string
	}{
		"replaced": {[]*string{&own}, map[string]string{"a": "own", "b": ""}},
		"spliced":  {[]*string{nil, &own}, map[string]string{"a": "builtin", "b": "b"}},
		"after":    {[]*string{&own, nil}, map[string]string{"a": "own", "b": "b"}},
		"relative": {[]*string{&rel}, map[string]string{"c": "relative"}},
		"none":     {[]*string{}, map[string]string{"a": ""}},
	} {
		r := script.Resolver{Paths: c.paths, Extensions: []string{".py"}}
		for file, want := range c.want {
			s, err := r.Resolve(run.Request{File: file}, filepath.Join(root, "w"))
			if want == "" {
				refused(t, err, run.CodeScriptNotFound, errdefs.ErrNotFound, "file")
				continue
			}
			require.NoError(t, err, name)
			require.Equal(t, want, string(s.Text), name)
		}
	}
}

func TestCallersElsewhereGetNoFilesOfThisMachine(t *testing.T) {
	root := tree(t, map[string]string{"secret.py": "1", ".mcpx/scripts/a.py": "cwd", "user/b.py": "b"})
	r := script.Resolver{UserDir: filepath.Join(root, "user"), Extensions: []string{".py"}, NamesOnly: true}
	for _, file := range []string{"secret.py", "./secret.py", filepath.Join(root, "secret.py"), ".."} {
		_, err := r.Resolve(run.Request{File: file}, root)
		refused(t, err, run.CodeDenied, errdefs.ErrPermissionDenied, "file")
	}
	_, err := r.Resolve(run.Request{File: "a"}, root)
	refused(t, err, run.CodeScriptNotFound, errdefs.ErrNotFound, "file")
	s, err := r.Resolve(run.Request{File: "b"}, root)
	require.NoError(t, err)
	require.Equal(t, "b", string(s.Text))
}

func TestWhatIsNoRegularFile(t *testing.T) {
	root := tree(t, map[string]string{"dir.py/": "", "real.py": "1"})
	require.NoError(t, unix.Mkfifo(filepath.Join(root, "fifo.py"), 0o644))
	require.NoError(t, os.Symlink("real.py", filepath.Join(root, "link.py")))
	require.NoError(t, os.Symlink("loop.py", filepath.Join(root, "loop.py")))
	require.NoError(t, os.Symlink("gone.py", filepath.Join(root, "dangling.py")))
	for file, code := range map[string]string{
		"./dir.py": run.CodeInvalidScript, "./fifo.py": run.CodeInvalidScript, "/dev/zero": run.CodeInvalidScript, "/dev/tty": run.CodeInvalidScript,
		"./loop.py": run.CodeInvalidScript, "./dangling.py": run.CodeScriptNotFound, "./real.py/x": run.CodeScriptNotFound,
		".": run.CodeInvalidScript, "..": run.CodeInvalidScript, "/": run.CodeInvalidScript,
		"x\x00y": run.CodeInvalidRequest, strings.Repeat("x", 300): run.CodeInvalidRequest, "./" + strings.Repeat("x/", 4000): run.CodeInvalidRequest,
	} {
		_, err := script.Resolver{}.Resolve(run.Request{File: file}, root)
		var known *run.Error
		require.ErrorAs(t, err, &known, file)
		require.Equal(t, code, known.Code, file)
		require.NotNil(t, known.Class)
	}
	s, err := script.Resolver{}.Resolve(run.Request{File: "./link.py"}, root)
	require.NoError(t, err)
	require.Equal(t, "1", string(s.Text))
	require.Equal(t, filepath.Join(root, "link.py"), s.Path)
}

func TestKernelFilesAreNotReadOn(t *testing.T) {
	for _, file := range []string{"/proc/self/environ", "/proc/self/cmdline", "/proc/kmsg"} {
		s, err := script.Resolver{}.Resolve(run.Request{File: file}, "/")
		if err != nil {
			var known *run.Error
			require.ErrorAs(t, err, &known, "%s: %v", file, err)
			continue
		}
		require.Empty(t, s.Text, file)
	}
}

func TestUnreadableFileSaysSo(t *testing.T) {
	root := tree(t, map[string]string{"x.py": "1"})
	require.NoError(t, os.Chmod(root, 0o755))
	require.NoError(t, os.Chmod(filepath.Join(root, "x.py"), 0))
	asNobody(t, func() {
		_, err := script.Resolver{}.Resolve(run.Request{File: filepath.Join(root, "x.py")}, "")
		e := refused(t, err, run.CodeInvalidScript, errdefs.ErrPermissionDenied, "file")
		require.Contains(t, e.Message, "permission denied")
	})
}

// asNobody runs f on a thread whose file accesses are not root's.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, err := unix.SetfsuidRetUid(65534)
	require.NoError(t, err)
	defer unix.SetfsuidRetUid(0)
	f()
}

func FuzzResolve(f *testing.F) {
	f.Add("report", "a/b")
	f.Add("../x.py", "..")
	f.Add("x\x00", "/")
	f.Add("./..//a/.mcpx/scripts/report.py", "")
	f.Add("..", "a/../../..")
	root := tree(f, map[string]string{"a/b/c.py": "c", "a/.mcpx/scripts/report.py": "r", "x.py": "x"})
	r := script.Resolver{UserDir: filepath.Join(root, "user"), Extensions: []string{".py"}}
	f.Fuzz(func(t *testing.T, file, cwd string) {
		if cwd != "" {
			cwd = root + "/" + cwd
		}
		s, err := r.Resolve(run.Request{File: file}, cwd)
		if err != nil {
			var known *run.Error
			if !errors.As(err, &known) || known.Class == nil || known.Code == "" {
				t.Fatalf("%q in %q: %v", file, cwd, err)
			}
			for _, place := range known.Searched {
				if filepath.Clean(place) != place || !filepath.IsAbs(place) {
					t.Fatalf("%q in %q: searched %q", file, cwd, place)
				}
			}
			return
		}
		if filepath.Clean(s.Path) != s.Path || !filepath.IsAbs(s.Path) || filepath.Join(s.Dir, s.Name) != s.Path {
			t.Fatalf("%q in %q: %+v", file, cwd, s)
		}
		if !strings.Contains(file, "/") && !strings.HasSuffix(strings.ToLower(file), ".py") && !strings.HasSuffix(s.Dir, "/scripts") {
			t.Fatalf("the name %q left the places: %s", file, s.Path)
		}
	})
}
