package script_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/script"
	"mcpx/policies"
)

func ro(path string) policies.MountRule { return policies.MountRule{Path: path} }
func rw(path string) policies.MountRule { return policies.MountRule{Path: path, Writable: true} }

func TestCallersDirectory(t *testing.T) {
	root := tree(t, map[string]string{"in/sub/": "", "out/": "", "in/file": "", "in/rw/deep/": ""})
	at := func(name string) string { return filepath.Join(root, name) }
	require.NoError(t, os.Symlink(at("out"), at("in/escape")))
	require.NoError(t, os.Symlink(at("in/sub"), at("in/inside")))
	require.NoError(t, os.Symlink(at("in"), at("alias")))
	rules := []policies.MountRule{ro(at("in")), rw(at("in/rw")), ro(at("not-there"))}
	for name, c := range map[string]struct {
		cwd    string
		shared bool
		rules  []policies.MountRule
		want   script.Workdir
		warns  string
	}{
		"none":                     {"", true, rules, script.Workdir{Inside: "/work"}, ""},
		"allowed":                  {at("in/sub"), true, rules, script.Workdir{Inside: at("in/sub"), Source: at("in/sub")}, ""},
		"the root itself":          {at("in") + "/", true, rules, script.Workdir{Inside: at("in"), Source: at("in")}, ""},
		"nearest rule decides":     {at("in/rw/deep"), true, rules, script.Workdir{Inside: at("in/rw/deep"), Source: at("in/rw/deep"), Writable: true}, ""},
		"a link that stays inside": {at("in/inside"), true, rules, script.Workdir{Inside: at("in/inside"), Source: at("in/sub")}, ""},
		"a link to the root":       {at("alias/sub"), true, rules, script.Workdir{Inside: at("alias/sub"), Source: at("in/sub")}, ""},
		"a rule that is a link":    {at("in/sub"), true, []policies.MountRule{ro(at("alias"))}, script.Workdir{Inside: at("in/sub"), Source: at("in/sub")}, ""},
		"a name that begins alike": {at("out"), true, []policies.MountRule{ro(at("o"))}, script.Workdir{Inside: at("out")}, "would allow it by mounts: {allow: [{path: \"" + at("out")},
		"not covered":              {at("out"), true, rules, script.Workdir{Inside: at("out")}, "would allow it"},
		"not shared":               {at("in/sub"), false, rules, script.Workdir{Inside: at("in/sub")}, "not shared"},
		"not shared and not there": {"/nope/x/../y", false, rules, script.Workdir{Inside: "/nope/y"}, "not here"},
		"container's own":          {"/etc/ssl", false, nil, script.Workdir{Inside: "/work"}, "container's own"},
		"container's own, shared":  {"/etc", true, nil, script.Workdir{Inside: "/work"}, "container's own"},
		"container's own, allowed": {"/etc", true, []policies.MountRule{ro("/etc")}, script.Workdir{Inside: "/work"}, "container's own"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := script.ResolveWorkdir(run.CwdCaller, c.cwd, script.Script{}, c.shared, c.rules, "")
			require.NoError(t, err)
			checkWarning(t, got, c.warns)
			got.Warnings = nil
			require.Equal(t, c.want, got)
		})
	}
}

func checkWarning(t *testing.T, w script.Workdir, says string) {
	t.Helper()
	if says == "" {
		require.Empty(t, w.Warnings)
		return
	}
	require.Len(t, w.Warnings, 1)
	require.Equal(t, "cwd_not_mounted", w.Warnings[0].Code)
	require.Equal(t, "warn", w.Warnings[0].Level)
	require.Contains(t, w.Warnings[0].Message, says)
}

func TestRefusedDirectories(t *testing.T) {
	root := tree(t, map[string]string{"in/": "", "out/": "", "in/file": ""})
	at := func(name string) string { return filepath.Join(root, name) }
	require.NoError(t, os.Symlink(at("out"), at("in/escape")))
	require.NoError(t, os.Symlink(at("in/loop"), at("in/loop")))
	rules := []policies.MountRule{ro(at("in"))}
	for name, c := range map[string]struct {
		cwd   string
		code  string
		class error
	}{
		"missing":           {"/nope", run.CodeCwdNotFound, errdefs.ErrNotFound},
		"a file":            {at("in/file"), run.CodeCwdNotFound, errdefs.ErrNotFound},
		"below a file":      {at("in/file/x"), run.CodeCwdNotFound, errdefs.ErrNotFound},
		"a loop":            {at("in/loop"), run.CodeCwdNotFound, errdefs.ErrNotFound},
		"a link out":        {at("in/escape"), run.CodeCwdNotAllowed, errdefs.ErrPermissionDenied},
		"relative":          {"in", run.CodeInvalidOption, errdefs.ErrInvalidArgument},
		"NUL":               {"/a\x00", run.CodeInvalidOption, errdefs.ErrInvalidArgument},
		"endless":           {"/" + strings.Repeat("a/", 3000), run.CodeInvalidOption, errdefs.ErrInvalidArgument},
		"endless component": {"/" + strings.Repeat("a", 256), run.CodeInvalidOption, errdefs.ErrInvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := script.ResolveWorkdir("", c.cwd, script.Script{}, true, rules, "")
			refused(t, err, c.code, c.class, "options.cwd")
		})
	}
	_, err := script.ResolveWorkdir("home", "", script.Script{}, true, nil, "")
	refused(t, err, run.CodeInvalidOption, errdefs.ErrInvalidArgument, "options.cwdPolicy")
}

func TestDirectoryThatTheDaemonMayNotSee(t *testing.T) {
	root := tree(t, map[string]string{"closed/sub/": ""})
	for dir := root; dir != "/"; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(dir, info.Mode()|0o111))
	}
	require.NoError(t, os.Chmod(filepath.Join(root, "closed"), 0))
	t.Cleanup(func() { os.Chmod(filepath.Join(root, "closed"), 0o755) })
	asNobody(t, func() {
		_, err := script.ResolveWorkdir("", filepath.Join(root, "closed/sub"), script.Script{}, true, nil, "")
		refused(t, err, run.CodeCwdNotAllowed, errdefs.ErrPermissionDenied, "options.cwd")
	})
}

func TestScriptPolicyIsTheScriptsDirectoryReadOnly(t *testing.T) {
	root := tree(t, map[string]string{"s/x.py": ""})
	s := script.Script{Dir: filepath.Join(root, "s")}
	w, err := script.ResolveWorkdir(run.CwdScript, "", s, true, []policies.MountRule{rw(root)}, "")
	require.NoError(t, err)
	require.Equal(t, script.Workdir{Inside: s.Dir, Source: s.Dir}, w)
	w, err = script.ResolveWorkdir(run.CwdScript, "", s, true, nil, "")
	require.NoError(t, err)
	require.Equal(t, "/work", w.Inside)
	checkWarning(t, w, "would allow it")
	w, err = script.ResolveWorkdir(run.CwdScript, "", script.Script{}, true, []policies.MountRule{rw(root)}, "")
	require.NoError(t, err)
	require.Empty(t, w.Source)
	checkWarning(t, w, "without a file")
}

func TestConfigPolicyIsTheNearestConfigDirectory(t *testing.T) {
	root := tree(t, map[string]string{"p/.config/mcpx/": "", "p/q/r/": "", "user/": "", ".mcpx/": ""})
	rules := []policies.MountRule{rw(root)}
	for _, c := range []struct {
		cwd    string
		shared bool
		user   string
		want   string
	}{
		{filepath.Join(root, "p/q/r"), true, filepath.Join(root, "user"), "p/.config/mcpx"},
		{root, true, filepath.Join(root, "user"), ".mcpx"},
		{filepath.Join(root, "p/q/r"), false, filepath.Join(root, "user"), "user"},
		{"", true, filepath.Join(root, "user"), "user"},
		{"", true, "", ""},
		{"", true, filepath.Join(root, "not-there"), ""},
	} {
		w, err := script.ResolveWorkdir(run.CwdConfig, c.cwd, script.Script{}, c.shared, rules, c.user)
		require.NoError(t, err)
		if c.want == "" {
			require.Equal(t, "/work", w.Inside)
			checkWarning(t, w, "no mcpx configuration directory")
			continue
		}
		require.Equal(t, script.Workdir{Inside: filepath.Join(root, c.want), Source: filepath.Join(root, c.want)}, w)
	}
}

func TestWorkdirPolicyIsPrivate(t *testing.T) {
	w, err := script.ResolveWorkdir(run.CwdWorkdir, "/nope", script.Script{}, true, nil, "")
	require.NoError(t, err)
	require.Equal(t, script.Workdir{Inside: "/work"}, w)
}

func TestNothingTheContainerNeedsIsHidden(t *testing.T) {
	for path, private := range map[string]bool{
		"/": true, "/tmp": true, "/work": true, "/usr": true, "/var": true, "/bin": true, "/lib/x": true, "/lib64": true, "/proc/1": true, "/sys": true, "/dev/shm": true,
		"/run": true, "/run/mcpx": true, "/run/user/1000": true, "/var/run/mcpx": true, "/mcpx": true, "/outbox/x": true, "/inbox": true, "/usr/local/bin": true, "/etc": true, "/x/../etc": true,
		"/tmp/x": false, "/work/x": false, "/home/u": false, "/root": false, "/opt/app": false, "/srv": false, "/var/www": false, "/usr/src/app": false, "/libx": false, "/mnt": false, "/binary": false,
	} {
		w, err := script.ResolveWorkdir("", path, script.Script{}, false, nil, "")
		require.NoError(t, err)
		require.Equal(t, private, w.Inside == "/work", path)
		require.Empty(t, w.Source)
	}
}

func FuzzResolveWorkdir(f *testing.F) {
	root := tree(f, map[string]string{"in/sub/": "", "out/": ""})
	require.NoError(f, os.Symlink(filepath.Join(root, "out"), filepath.Join(root, "in/escape")))
	f.Add("in/escape", true, true)
	f.Add("in/../../../../run/mcpx/", true, false)
	f.Add("in/sub/../escape/.", true, true)
	f.Fuzz(func(t *testing.T, cwd string, below, shared bool) {
		if below {
			cwd = root + "/" + cwd
		}
		w, err := script.ResolveWorkdir("", cwd, script.Script{}, shared, []policies.MountRule{ro(filepath.Join(root, "in"))}, "")
		if err != nil {
			return
		}
		if !filepath.IsAbs(w.Inside) || filepath.Clean(w.Inside) != w.Inside {
			t.Fatalf("%q: inside %q", cwd, w.Inside)
		}
		if w.Source != "" && w.Source != filepath.Join(root, "in") && !strings.HasPrefix(w.Source, filepath.Join(root, "in")+"/") {
			t.Fatalf("%q shows %q", cwd, w.Source)
		}
	})
}
