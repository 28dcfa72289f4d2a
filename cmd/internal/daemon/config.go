// Package daemon wires mcpx together. Configuration meets here and nowhere
// else, and so does the list of engines and stores.
package daemon

import (
	"os"
	"path/filepath"
	"runtime"
	"time"

	"mcpx/orchestrator/run"
)

// Config is what mcpx was told, after all sources were merged.
type Config struct {
	// State is the directory that holds everything that outlives a process.
	State string
	// Engine is the kind of engine: docker, oci, or fake (tests only).
	Engine     string
	DockerHost string
	// Init is the path of mcpx-init, "" for the usual places.
	Init string
	// Policy is the policy file, "" for the built-in policies.
	Policy string
	// Scripts are the places where a script's name is looked up; "" stands for
	// the built-in places, nil for just these.
	Scripts []string
	// UserScripts is the last of the built-in places.
	UserScripts string
	Interpreter string
	CwdPolicy   string

	// MCPConfig is the file that names the MCP servers; "": the nearest, NoMCP: none.
	MCPConfig string
	// Cwd is where that search begins, UserDir the user's own configuration directory.
	Cwd, UserDir string
	// Self is this program, which is started to parse scripts apart; "": they
	// are parsed in this process.
	Self string
	// LookupEnv yields the environment for ${VAR} in that file.
	LookupEnv func(string) (string, bool)

	Listen    []string
	TokenFile string
	NoAuth    bool
	Hosts     []string
	Origins   []string
	Slots     int
	Queue     int
	Drain     time.Duration

	// LogLevel is "" when nobody chose one: a daemon then tells what it does,
	// a command only what went wrong.
	LogLevel  string
	LogFormat string

	Where             string
	Endpoint          string
	EndpointTokenFile string
}

// Values of Config.Engine.
const (
	EngineDocker = "docker"
	EngineOCI    = "oci"
	EngineFake   = "fake"
)

// Values of Config.Where.
const (
	WhereAuto   = "auto"
	WhereLocal  = "local"
	WhereRemote = "remote"
)

// Process is what the operating system tells about this process.
type Process struct {
	LookupEnv func(string) (string, bool)
	UID       int
	Home      string
	Etc       string // configuration of the machine
	Cwd       string
	Self      string // path of this program
}

// ThisProcess asks the operating system.
func ThisProcess() Process {
	home, _ := os.UserHomeDir() // without one, paths below it are relative to the root directory
	cwd, _ := os.Getwd()        // without one, nothing is searched from it
	self, _ := os.Executable()  // without it, scripts are parsed in this process
	return Process{LookupEnv: os.LookupEnv, UID: os.Geteuid(), Home: home, Etc: "/etc", Cwd: cwd, Self: self}
}

func (p Process) env(name string) string {
	value, _ := p.LookupEnv(name)
	return value
}

// xdg is the directory that variable names (absolute, as the XDG specification
// wants it), else one below the home directory.
func (p Process) xdg(variable, below string) string {
	if dir := p.env(variable); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join("/", p.Home, below)
}

// defaults are the values that stand when nobody says otherwise.
func defaults(p Process) Config {
	return Config{
		State:       defaultState(p),
		Engine:      EngineDocker,
		DockerHost:  defaultDockerHost(p),
		UserScripts: filepath.Join(p.xdg("XDG_CONFIG_HOME", ".config"), "mcpx", "scripts"),
		CwdPolicy:   run.CwdCaller,
		Cwd:         p.Cwd,
		UserDir:     filepath.Join(p.xdg("XDG_CONFIG_HOME", ".config"), "mcpx"),
		LookupEnv:   p.LookupEnv,
		Self:        p.Self,
		Listen:      []string{DefaultEndpoint(p)},
		Slots:       max(2, runtime.NumCPU()),
		Queue:       64,
		Drain:       10 * time.Second,
		LogFormat:   "text",
		Where:       WhereAuto,
	}
}

func defaultState(p Process) string {
	if p.UID == 0 {
		return "/var/lib/mcpx"
	}
	return filepath.Join(p.xdg("XDG_STATE_HOME", ".local/state"), "mcpx")
}

// defaultDockerHost follows the docker command.
func defaultDockerHost(p Process) string {
	if host := p.env("DOCKER_HOST"); host != "" {
		return host
	}
	return "unix:///var/run/docker.sock"
}

// DefaultEndpoint is where a daemon listens, and where clients look for it.
// Without a runtime directory the state directory serves: a directory in /tmp
// could be made by somebody else first.
func DefaultEndpoint(p Process) string {
	if p.UID == 0 {
		return "unix:///run/mcpx/mcpx.sock"
	}
	if dir := p.env("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return "unix://" + filepath.Join(dir, "mcpx", "mcpx.sock")
	}
	return "unix://" + filepath.Join(defaultState(p), "mcpx.sock")
}

// defaultFile is the configuration file that is read when none is named: the
// user's, else the machine's.
func defaultFile(p Process) string {
	own := filepath.Join(p.xdg("XDG_CONFIG_HOME", ".config"), "mcpx", "config.yaml")
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return filepath.Join(p.Etc, "mcpx", "config.yaml")
}
