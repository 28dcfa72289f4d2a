package daemon_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/api/problem"
	"mcpx/cmd/internal/daemon"
)

// process is one with just these variables.
func process(t *testing.T, env map[string]string) daemon.Process {
	t.Helper()
	return daemon.Process{UID: 1000, Home: t.TempDir(), Etc: t.TempDir(), LookupEnv: func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}}
}

func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func setting(t *testing.T, all []daemon.Setting, key string) daemon.Setting {
	t.Helper()
	for _, s := range all {
		if s.Key == key {
			return s
		}
	}
	require.Failf(t, "no such setting", "%s", key)
	return daemon.Setting{}
}

func TestLaterSourcesOverrideEarlierOnes(t *testing.T) {
	file := configFile(t, "slots: 3\nlog:\n  level: debug\n")
	env := map[string]string{"MCPX_SLOTS": "4", "MCPX_LISTEN": "127.0.0.1:1,127.0.0.1:2"}
	flags := map[string][]string{"slots": {"5"}}
	for name, c := range map[string]struct {
		sources daemon.Sources
		slots   int
		source  string
	}{
		"file over default": {daemon.Sources{Process: process(t, nil), File: file}, 3, "file " + file + ":1"},
		"env over file":     {daemon.Sources{Process: process(t, env), File: file}, 4, "env MCPX_SLOTS"},
		"flag over env":     {daemon.Sources{Process: process(t, env), File: file, Flags: flags}, 5, "flag --slots"},
	} {
		t.Run(name, func(t *testing.T) {
			config, settings, err := daemon.Load(c.sources)
			require.NoError(t, err)
			require.Equal(t, c.slots, config.Slots)
			got := setting(t, settings, "slots")
			require.Equal(t, c.slots, got.Value)
			require.Equal(t, c.source, got.Source)
			require.Equal(t, "debug", config.LogLevel)
			require.Equal(t, "file "+file+":3", setting(t, settings, "log.level").Source)
			require.Equal(t, "default", setting(t, settings, "queue").Source)
		})
	}
	config, _, err := daemon.Load(daemon.Sources{Process: process(t, env)})
	require.NoError(t, err)
	require.Equal(t, []string{"127.0.0.1:1", "127.0.0.1:2"}, config.Listen)
}

func TestDefaultsFollowTheUser(t *testing.T) {
	own := process(t, map[string]string{"XDG_RUNTIME_DIR": "/run/user/1000", "XDG_STATE_HOME": "relative"})
	config, _, err := daemon.Load(daemon.Sources{Process: own})
	require.NoError(t, err)
	require.Equal(t, filepath.Join(own.Home, ".local/state/mcpx"), config.State, "a relative XDG directory does not count")
	require.Equal(t, []string{"unix:///run/user/1000/mcpx/mcpx.sock"}, config.Listen)

	own.UID = 0
	config, _, err = daemon.Load(daemon.Sources{Process: own, File: configFile(t, "")})
	require.NoError(t, err)
	require.Equal(t, "/var/lib/mcpx", config.State)
	require.Equal(t, []string{"unix:///run/mcpx/mcpx.sock"}, config.Listen)
}

func TestDockerHostIsInherited(t *testing.T) {
	env := map[string]string{"DOCKER_HOST": "tcp://10.0.0.1:2376"}
	config, settings, err := daemon.Load(daemon.Sources{Process: process(t, env)})
	require.NoError(t, err)
	require.Equal(t, "tcp://10.0.0.1:2376", config.DockerHost)
	require.Equal(t, "env DOCKER_HOST", setting(t, settings, "docker.host").Source)
	env["MCPX_DOCKER_HOST"] = "unix:///x"
	config, _, err = daemon.Load(daemon.Sources{Process: process(t, env)})
	require.NoError(t, err)
	require.Equal(t, "unix:///x", config.DockerHost)
}

func TestStateIsAbsolute(t *testing.T) {
	config, _, err := daemon.Load(daemon.Sources{Process: process(t, nil), Flags: map[string][]string{"state": {"x"}}})
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(config.State))
}

func TestUserFileIsFoundWhereItBelongs(t *testing.T) {
	p := process(t, nil)
	dir := filepath.Join(p.Home, ".config", "mcpx")
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.yaml"), []byte("paths.scripts: [/srv/scripts, null]\n"), 0o600))
	config, _, err := daemon.Load(daemon.Sources{Process: p})
	require.NoError(t, err)
	require.Equal(t, []string{"/srv/scripts", ""}, config.Scripts)
}

func TestBadValuesNameTheirSource(t *testing.T) {
	for name, c := range map[string]struct {
		file  string
		env   map[string]string
		flags map[string][]string
		want  string
	}{
		"unknown key":    {file: "slot: 3\n", want: `:1: "slot" is no setting`},
		"unknown nested": {file: "\ndocker:\n  hots: x\n", want: `:3: "docker.hots" is no setting`},
		"twice":          {file: "docker.host: a\ndocker:\n  host: b\n", want: `:3: "docker.host" stands twice`},
		"wrong type":     {file: "slots: many\n", want: `slots: "many" is not a whole number`},
		"too small":      {env: map[string]string{"MCPX_SLOTS": "0"}, want: "env MCPX_SLOTS"},
		"not a word":     {flags: map[string][]string{"engine": {"podman"}}, want: `flag --engine: engine: "podman" is none of docker, oci, fake`},
		"not a bool":     {env: map[string]string{"MCPX_NO_AUTH": "maybe"}, want: "neither true nor false"},
		"not a duration": {env: map[string]string{"MCPX_DRAIN": "5"}, want: "not a duration"},
		"null":           {file: "state:\n", want: "state: has no value"},
		"list in a list": {file: "listen: [[a]]\n", want: "something else than values"},
		"not a mapping":  {file: "- a\n", want: "a mapping of settings"},
		"not yaml":       {file: "a: [\n", want: "config.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			sources := daemon.Sources{Process: process(t, c.env), Flags: c.flags}
			if c.file != "" {
				sources.File = configFile(t, c.file)
			}
			_, _, err := daemon.Load(sources)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, problem.ExitUsage, problem.Of(err).Exit)
		})
	}
}

func TestNamedFileMustExist(t *testing.T) {
	_, _, err := daemon.Load(daemon.Sources{Process: process(t, nil), File: "/nonexistent/config.yaml"})
	require.ErrorContains(t, err, "/nonexistent/config.yaml")
	_, _, err = daemon.Load(daemon.Sources{Process: process(t, map[string]string{"MCPX_CONFIG": "/nonexistent/c.yaml"})})
	require.ErrorContains(t, err, "/nonexistent/c.yaml")
}
