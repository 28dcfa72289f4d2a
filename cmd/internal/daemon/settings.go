package daemon

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Setting is one value and where it came from.
type Setting struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Source string `json:"source"` // "default", "file PATH:LINE", "env NAME", "flag --NAME"
	Usage  string `json:"usage"`
}

// Key describes one setting to those who parse flags.
type Key struct {
	Name  string
	Usage string
	// Flag is its flag's name, "" when it has none.
	Flag string
	// Env is its variable's name.
	Env string
	// Toggle: the flag needs no value. Many: it may be given more than once.
	Toggle, Many bool

	at func(*Config) variable
}

// Keys lists every setting.
func Keys() []Key {
	return []Key{
		key("state", "state", "directory for everything that outlives a process", text(func(c *Config) *string { return &c.State })),
		key("engine", "engine", "what makes the containers: docker, or oci, which needs no daemon but crun and root (fake isolates nothing and is for tests)", word(func(c *Config) *string { return &c.Engine }, EngineDocker, EngineOCI, EngineFake)),
		key("docker.host", "docker-host", "address of the docker daemon", text(func(c *Config) *string { return &c.DockerHost })),
		key("init", "init", "path of mcpx-init; empty: beside mcpx, then PATH", text(func(c *Config) *string { return &c.Init })),
		key("policy", "policy", "policy file; empty: the built-in policies", text(func(c *Config) *string { return &c.Policy })),
		key("paths.scripts", "", "places where a script's name is looked up; null (empty) stands for the built-in places", list(func(c *Config) *[]string { return &c.Scripts })),
		key("script.interpreter", "", "command line for scripts that name no interpreter", text(func(c *Config) *string { return &c.Interpreter })),
		key("script.cwd", "", "what the caller's directory means in the container", word(func(c *Config) *string { return &c.CwdPolicy }, run.CwdCaller, run.CwdScript, run.CwdConfig, run.CwdWorkdir)),
		key("mcp.config", "mcp-config", "file that names the MCP servers that scripts may call; empty: the nearest .mcpx.json, .mcpx/config.json or .mcp.json, then the user's; none: no servers", text(func(c *Config) *string { return &c.MCPConfig })),
		key("listen", "listen", "where to take requests: unix:///path or host:port", list(func(c *Config) *[]string { return &c.Listen })),
		key("token-file", "token-file", "file whose first line is the bearer token for TCP", text(func(c *Config) *string { return &c.TokenFile })),
		key("no-auth", "no-auth", "take TCP requests without a token; loopback only", toggle(func(c *Config) *bool { return &c.NoAuth })),
		key("http.hosts", "http-host", "names, beside addresses and localhost, that a request's Host header may carry", list(func(c *Config) *[]string { return &c.Hosts })),
		key("http.origins", "http-origin", "web origins, such as https://console.example, whose pages may call", list(func(c *Config) *[]string { return &c.Origins })),
		key("slots", "slots", "how many scripts run at once", number(func(c *Config) *int { return &c.Slots }, 1)),
		key("queue", "queue", "how many more may wait", number(func(c *Config) *int { return &c.Queue }, 0)),
		key("drain", "drain", "how long a daemon told to end waits for its runs", span(func(c *Config) *time.Duration { return &c.Drain })),
		key("log.level", "log-level", "least level that is logged", word(func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error")),
		key("log.format", "log-format", "how log lines look", word(func(c *Config) *string { return &c.LogFormat }, "text", "json")),
		key("exec.where", "", "where exec and run work", word(func(c *Config) *string { return &c.Where }, WhereAuto, WhereLocal, WhereRemote)),
		key("daemon.endpoint", "endpoint", "a daemon's address: unix:///path, http(s)://host:port or ssh://user@host", text(func(c *Config) *string { return &c.Endpoint })),
		key("daemon.token-file", "endpoint-token-file", "file whose first line is the token to present to it", text(func(c *Config) *string { return &c.EndpointTokenFile })),
	}
}

func key(name, flag, usage string, at func(*Config) variable) Key {
	v := at(&Config{})
	_, isToggle := v.(toggleVar)
	_, isList := v.(listVar)
	if w, ok := v.(wordVar); ok {
		usage += " (" + strings.Join(w.known, ", ") + ")"
	}
	return Key{
		Name: name, Flag: flag, Usage: usage, at: at, Toggle: isToggle, Many: isList,
		Env: "MCPX_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name)),
	}
}

// Sources are what a configuration is made of, each overriding those before:
// defaults, a file, the environment, flags.
type Sources struct {
	Process Process
	// File is the configuration file, which must exist; "" for the usual place.
	File string
	// Flags holds what was given on the command line, by key name.
	Flags map[string][]string
}

// Load merges the sources and tells of every value where it came from.
func Load(s Sources) (Config, []Setting, error) {
	config := defaults(s.Process)
	origin := map[string]string{}
	fromFile, err := readFile(s)
	if err != nil {
		return Config{}, nil, err
	}
	if s.Process.env("DOCKER_HOST") != "" {
		origin["docker.host"] = "env DOCKER_HOST"
	}
	for _, k := range Keys() {
		for _, given := range []given{fromFile[k.Name], fromEnv(s.Process, k), fromFlag(s.Flags, k)} {
			if given.source == "" {
				continue
			}
			if err := k.at(&config).set(given.values); err != nil {
				return Config{}, nil, badValue(k, given, err)
			}
			origin[k.Name] = given.source
		}
	}
	if config.State, err = filepath.Abs(config.State); err != nil {
		return Config{}, nil, fmt.Errorf("state directory: %w", err)
	}
	return config, report(&config, origin), nil
}

// given is a value as a source has it.
type given struct {
	values []string
	source string
}

func fromEnv(p Process, k Key) given {
	value, ok := p.LookupEnv(k.Env)
	if !ok {
		return given{}
	}
	if k.Many {
		return given{strings.Split(value, ","), "env " + k.Env}
	}
	return given{[]string{value}, "env " + k.Env}
}

func fromFlag(flags map[string][]string, k Key) given {
	values, ok := flags[k.Name]
	if !ok {
		return given{}
	}
	return given{values, "flag --" + k.Flag}
}

func badValue(k Key, g given, err error) error {
	return &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: g.source,
		Message: fmt.Sprintf("%s: %v", k.Name, err), Hint: k.Usage}
}

func report(c *Config, origin map[string]string) []Setting {
	var all []Setting
	for _, k := range Keys() {
		source := origin[k.Name]
		if source == "" {
			source = "default"
		}
		all = append(all, Setting{Key: k.Name, Value: k.at(c).get(), Source: source, Usage: k.Usage})
	}
	return all
}

// variable is a place in a Config.
type variable interface {
	set(values []string) error
	get() any
}

type (
	textVar struct{ p *string }
	wordVar struct {
		p     *string
		known []string
	}
	numberVar struct {
		p     *int
		least int
	}
	toggleVar struct{ p *bool }
	listVar   struct{ p *[]string }
	spanVar   struct{ p *time.Duration }
)

func text(at func(*Config) *string) func(*Config) variable {
	return func(c *Config) variable { return textVar{at(c)} }
}

func word(at func(*Config) *string, known ...string) func(*Config) variable {
	return func(c *Config) variable { return wordVar{at(c), known} }
}

func number(at func(*Config) *int, least int) func(*Config) variable {
	return func(c *Config) variable { return numberVar{at(c), least} }
}

func toggle(at func(*Config) *bool) func(*Config) variable {
	return func(c *Config) variable { return toggleVar{at(c)} }
}

func list(at func(*Config) *[]string) func(*Config) variable {
	return func(c *Config) variable { return listVar{at(c)} }
}

func span(at func(*Config) *time.Duration) func(*Config) variable {
	return func(c *Config) variable { return spanVar{at(c)} }
}

// single is the value of a setting that has one; the last flag given wins.
func single(values []string) (string, error) {
	if len(values) == 0 {
		return "", fmt.Errorf("has no value")
	}
	return values[len(values)-1], nil
}

func (v textVar) set(values []string) (err error) {
	*v.p, err = single(values)
	return err
}
func (v textVar) get() any { return *v.p }

func (v wordVar) set(values []string) error {
	value, err := single(values)
	if err != nil {
		return err
	}
	if !slices.Contains(v.known, value) {
		return fmt.Errorf("%q is none of %s", value, strings.Join(v.known, ", "))
	}
	*v.p = value
	return nil
}
func (v wordVar) get() any { return *v.p }

func (v numberVar) set(values []string) error {
	value, err := single(values)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < v.least {
		return fmt.Errorf("%q is not a whole number from %d", value, v.least)
	}
	*v.p = n
	return nil
}
func (v numberVar) get() any { return *v.p }

func (v toggleVar) set(values []string) error {
	value, err := single(values)
	if err != nil {
		return err
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", value)
	}
	*v.p = on
	return nil
}
func (v toggleVar) get() any { return *v.p }

func (v listVar) set(values []string) error {
	*v.p = slices.Clone(values)
	return nil
}
func (v listVar) get() any {
	if *v.p == nil {
		return []string{}
	}
	return *v.p
}

func (v spanVar) set(values []string) error {
	value, err := single(values)
	if err != nil {
		return err
	}
	d, err := time.ParseDuration(value)
	if err != nil || d < 0 {
		return fmt.Errorf("%q is not a duration such as 30s", value)
	}
	*v.p = d
	return nil
}
func (v spanVar) get() any { return v.p.String() }
