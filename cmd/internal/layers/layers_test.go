// Package layers_test holds the tree to its layers: who may import whom, and
// which modules and habits stay where they belong.
package layers_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	root   = "../../.."
	module = "mcpx"
)

// layers says for every package which of ours it may import, in code that is
// not a test's. A new package needs a line here.
var layers = map[string][]string{
	// Vocabulary.
	"orchestrator/run":           {},
	"orchestrator/frame":         {},
	"orchestrator/frame/upgrade": {"orchestrator/frame"},
	"orchestrator/engine":        {},
	"images":                     {"orchestrator/run"},
	"images/runner":              {},
	"policies":                   {"images", "orchestrator/run"},
	"artifacts":                  {"orchestrator/run"},
	"artifacts/sqlite/database":  {},
	"artifacts/sqlite":           {"artifacts", "artifacts/sqlite/database", "orchestrator/run"},
	"artifacts/indextest":        {"artifacts"},

	// What runs in a container.
	"orchestrator/supervisor":          {"orchestrator/engine", "orchestrator/frame", "orchestrator/frame/upgrade", "orchestrator/supervisor/proctree"},
	"orchestrator/supervisor/endpoint": {"orchestrator/frame"},
	"orchestrator/supervisor/proctree": {},
	"orchestrator/supervisor/inittest": {},
	"cmd/mcpx-init":                    {"orchestrator/engine", "orchestrator/frame", "orchestrator/supervisor", "orchestrator/supervisor/endpoint"},

	// Engines.
	"orchestrator/engine/link":       {"orchestrator/engine", "orchestrator/frame"},
	"orchestrator/engine/docker":     {"orchestrator/engine", "orchestrator/engine/link", "orchestrator/run"},
	"orchestrator/engine/ocispec":    {"orchestrator/engine"},
	"orchestrator/engine/oci":        {"orchestrator/engine", "orchestrator/engine/link", "orchestrator/engine/ocispec", "orchestrator/run"},
	"orchestrator/engine/fake":       {"orchestrator/engine", "orchestrator/engine/link", "orchestrator/supervisor/proctree"},
	"orchestrator/engine/enginetest": {"orchestrator/engine", "orchestrator/frame", "orchestrator/frame/upgrade"},

	// Tools of other servers.
	"orchestrator/tool":     {},
	"orchestrator/upstream": {"orchestrator/run", "orchestrator/supervisor/proctree", "orchestrator/tool"},

	// One run.
	"orchestrator/script":  {"orchestrator/run", "policies"},
	"orchestrator/client":  {"orchestrator/engine", "orchestrator/run", "orchestrator/tool"},
	"orchestrator/sidecar": {"orchestrator/engine", "orchestrator/frame", "orchestrator/frame/upgrade", "orchestrator/run", "orchestrator/tool"},
	"orchestrator":         {"artifacts", "images", "orchestrator/client", "orchestrator/engine", "orchestrator/run", "orchestrator/script", "orchestrator/sidecar", "orchestrator/tool", "policies"},

	// Many runs.
	"orchestrator/job":        {"orchestrator/run"},
	"orchestrator/job/sqlite": {"artifacts/sqlite/database", "orchestrator", "orchestrator/job", "orchestrator/run"},

	// Surfaces.
	"api/problem": {"orchestrator/run"},
	"api/auth":    {"orchestrator/run"},
	"api/client":  {"api/problem", "api/rest", "artifacts", "orchestrator/job", "orchestrator/run", "orchestrator/tool", "policies"},
	"api/rest":    {"api/auth", "api/problem", "artifacts", "images", "orchestrator/engine", "orchestrator/job", "orchestrator/run", "orchestrator/tool", "policies"},
	"api/mcp":     {"api/auth", "api/problem", "api/rest", "artifacts", "orchestrator/job", "orchestrator/run", "orchestrator/tool"},

	// The programs: only here all of it meets.
	"cmd/mcpx":                {"cmd/internal/cli"},
	"cmd/internal/cli":        everything,
	"cmd/internal/daemon":     everything,
	"cmd/internal/layers":     {},
	"cmd/internal/acceptance": {},
}

// everything is what the wiring may import.
var everything = []string{"*"}

// confined modules are imported by these packages alone, tests included.
var confined = map[string]func(pkg string) bool{
	"gorm.io":                     inSQLite,
	"github.com/mattn/go-sqlite3": inSQLite,
	"github.com/gin-gonic":        below("api"),
	"github.com/docker":           below("orchestrator/engine"),
	"github.com/moby":             below("orchestrator/engine"),
	"github.com/spf13":            below("cmd"),
	"github.com/evanw":            below("orchestrator/client"),
}

func inSQLite(pkg string) bool { return slices.Contains(strings.Split(pkg, "/"), "sqlite") }

// stdlibOnly are packages that programs of ours without dependencies, or all
// the others, are built on.
var stdlibOnly = []string{"orchestrator/run", "orchestrator/frame"}

// forTests are packages that only tests import.
var forTests = []string{"orchestrator/supervisor/inittest", "orchestrator/engine/enginetest", "artifacts/indextest"}

func below(dir string) func(string) bool {
	return func(pkg string) bool { return pkg == dir || strings.HasPrefix(pkg, dir+"/") }
}

// source is one parsed file.
type source struct {
	pkg  string // directory, relative to the root
	name string
	test bool
	file *ast.File
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if base := entry.Name(); name != root && (strings.HasPrefix(base, ".") || base == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		all = append(all, source{pkg: path.Dir(relative), name: relative, test: strings.HasSuffix(name, "_test.go"), file: file})
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(all), 20, "the walk has found the tree")
	return all
}

func (s source) imports(t *testing.T) []string {
	t.Helper()
	var paths []string
	for _, spec := range s.file.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		paths = append(paths, p)
	}
	return paths
}

func TestImportsPointOneWay(t *testing.T) {
	for _, s := range sources(t) {
		allowed, listed := layers[s.pkg]
		if !listed {
			t.Errorf("%s: package %s has no line in layers", s.name, s.pkg)
			continue
		}
		if s.test {
			continue // tests bring together what they need
		}
		for _, imported := range s.imports(t) {
			ours, ok := strings.CutPrefix(imported, module+"/")
			if ok && slices.Contains(forTests, ours) && !slices.Contains(forTests, s.pkg) {
				t.Errorf("%s imports %s, which is for tests", s.name, ours)
			}
			if ok && allowed != nil && !slices.Contains(allowed, "*") && !slices.Contains(allowed, ours) {
				t.Errorf("%s imports %s; package %s may import %v", s.name, ours, s.pkg, allowed)
			}
		}
	}
}

func TestLayersNameOnlyWhatExists(t *testing.T) {
	for _, pkg := range slices.Sorted(maps.Keys(layers)) {
		files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*.go"))
		require.NoError(t, err)
		if len(files) == 0 {
			t.Errorf("%s has a line in layers and no files", pkg)
		}
	}
}

func TestModulesStayWhereTheyBelong(t *testing.T) {
	for _, s := range sources(t) {
		for _, imported := range s.imports(t) {
			for prefix, belongs := range confined {
				if (imported == prefix || strings.HasPrefix(imported, prefix+"/")) && !belongs(s.pkg) {
					t.Errorf("%s imports %s, which does not belong there", s.name, imported)
				}
			}
			first, _, _ := strings.Cut(imported, "/")
			if !s.test && slices.Contains(stdlibOnly, s.pkg) && (strings.Contains(first, ".") || first == module) {
				t.Errorf("%s imports %s; package %s stands on the standard library alone", s.name, imported, s.pkg)
			}
		}
	}
}

// The environment is read in cmd and handed on, so that nothing below depends
// on where it runs; init functions run unasked.
func TestNoHiddenInputs(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || slices.Contains(forTests, s.pkg) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					t.Errorf("%s has an init function", s.name)
				}
			case *ast.SelectorExpr:
				if of, ok := n.X.(*ast.Ident); ok && of.Name == "os" && readsEnvironment(n.Sel.Name) && !below("cmd")(s.pkg) {
					t.Errorf("%s calls os.%s", s.name, n.Sel.Name)
				}
			}
			return true
		})
	}
}

func readsEnvironment(function string) bool {
	return slices.Contains([]string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, function)
}

// Time in tests is synctest's, in which a sleep takes none; and a test that does
// not run says so by failing.
func TestTestsNeitherSleepNorSkip(t *testing.T) {
	for _, s := range sources(t) {
		fakeTime := slices.Contains(s.imports(t), "testing/synctest")
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, ok := sel.X.(*ast.Ident)
			if !ok {
				return true
			}
			if s.test && !fakeTime && of.Name == "time" && sel.Sel.Name == "Sleep" {
				t.Errorf("%s sleeps", s.name)
			}
			if (of.Name == "t" || of.Name == "b") && strings.HasPrefix(sel.Sel.Name, "Skip") && sel.Sel.Name != "Skipped" {
				t.Errorf("%s skips", s.name)
			}
			return true
		})
	}
}

func TestMain(m *testing.M) {
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
