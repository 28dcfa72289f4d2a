package cli

import (
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"mcpx/orchestrator/run"
)

// wishes are the flags that exec and run share.
type wishes struct {
	runtime   string
	bash      bool
	timeout   string
	env       []string
	cwd       string
	cwdPolicy string
	stdin     string
	label     string
	session   string
	profile   string
	// artifactsDir is where everything goes that the run leaves.
	artifactsDir string

	json, stream, quiet bool
	place               place
}

func (w *wishes) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	// What stands after the script is the script's.
	f.SetInterspersed(false)
	f.StringVar(&w.runtime, "runtime", "", "interpreter, or a command line such as \"python3 -u\"; the script's first line wins")
	f.StringVar(&w.runtime, "shell", "", "the same as --runtime")
	f.BoolVar(&w.bash, "bash", false, "the same as --runtime bash")
	f.StringVar(&w.timeout, "timeout", "", "wall clock of the script, such as 30s, counted from its start")
	f.StringArrayVar(&w.env, "env", nil, "variable for the script, NAME=VALUE; NAME alone takes the value from here (repeatable)")
	f.StringVar(&w.cwd, "cwd", "", "directory that the script works in (default: this one)")
	f.StringVar(&w.cwdPolicy, "cwd-policy", "", "what that means in the container: caller, script, config or workdir")
	f.StringVar(&w.stdin, "stdin", "", "file for the script's standard input; - for this command's (default: this command's, unless it is a terminal)")
	f.StringVar(&w.label, "label", "", "shown in listings")
	f.StringVar(&w.session, "session", "", "session that the run belongs to")
	f.StringVar(&w.profile, "permissions", "", "named permission profile")
	f.BoolVar(&w.json, "json", false, "print the structured result")
	f.BoolVar(&w.stream, "stream", false, "print the run's frames as they happen, one JSON object a line")
	f.StringVar(&w.artifactsDir, "artifacts-dir", "", "directory to put the run's artifacts into; it is made if missing, and no file is overwritten")
	f.BoolVar(&w.quiet, "quiet", false, "no lines of mcpx beside errors")
	w.place.bind(f)
	cmd.MarkFlagsMutuallyExclusive("json", "stream")
	cmd.MarkFlagsMutuallyExclusive("runtime", "shell", "bash")
}

// options turns the flags into a request's options; the script's input is apart.
func (w *wishes) options(a *app, args []string) (run.Options, error) {
	env, err := w.variables(a)
	if err != nil {
		return run.Options{}, err
	}
	o := run.Options{
		Runtime: w.runtime, Timeout: w.timeout, Env: env, Cwd: w.cwd, CwdPolicy: w.cwdPolicy, Label: w.label,
		Session: w.session, Permissions: w.profile, Args: args, Capabilities: []string{"artifacts"},
	}
	if w.bash {
		o.Runtime = "bash"
	}
	return o, nil
}

func (w *wishes) variables(a *app) (map[string]string, error) {
	if len(w.env) == 0 {
		return nil, nil
	}
	env := map[string]string{}
	for _, entry := range w.env {
		name, value, given := strings.Cut(entry, "=")
		if name == "" {
			return nil, wrong(fmt.Sprintf("--env %q names no variable", entry), "write NAME=VALUE, or NAME to take it from here")
		}
		if !given {
			if value, given = a.process.LookupEnv(name); !given {
				return nil, wrong(fmt.Sprintf("--env %s: there is no such variable here", name), "write "+name+"=VALUE")
			}
		}
		env[name] = value
	}
	return env, nil
}

// scriptArgs are the script's arguments. One `--` before them is ours, for those
// who are used to it.
func scriptArgs(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}

// warnMisplaced tells when a flag of ours stands where it is the script's.
func (a *app) warnMisplaced(cmd *cobra.Command, args []string) {
	for _, arg := range args {
		name, isLong := strings.CutPrefix(arg, "--")
		if !isLong || name == "" {
			return
		}
		name, _, _ = strings.Cut(name, "=")
		if cmd.Flags().Lookup(name) != nil {
			a.say("note: %s stands after the script, so it is the script's; for mcpx put it before (-- silences this)", arg)
		}
	}
}

// input opens what the script is to read; nil for nothing.
func (w *wishes) input(a *app) (io.ReadCloser, error) {
	switch w.stdin {
	case "":
		if a.in == nil || isTerminal(a.in) {
			return nil, nil
		}
		return io.NopCloser(a.in), nil
	case "-":
		return io.NopCloser(a.in), nil
	}
	f, err := os.Open(w.stdin)
	if err != nil {
		return nil, wrong("--stdin: "+err.Error(), "name a file that can be read, or - for standard input")
	}
	return f, nil
}

// Bounds of what travels inside a request.
const (
	maxSource = 8 << 20
	maxStdin  = 32 << 20
	// patience is how long an inherited standard input may say nothing at all
	// before a request goes without it: services and ssh leave pipes open that
	// nobody writes to.
	patience = 2 * time.Second
)

// wholeInput reads all of in for a request. An input that nobody asked for and
// that says nothing is left alone; the caller tells people.
func wholeInput(in io.Reader, asked bool) (data []byte, silent bool, err error) {
	type answer struct {
		data []byte
		err  error
	}
	first, rest := make(chan struct{}, 1), make(chan answer, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(&heralding{in, first}, maxStdin+1))
		rest <- answer{data, err}
	}()
	if !asked {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-first:
		case <-timer.C:
			return nil, true, nil
		}
	}
	got := <-rest
	if got.err != nil {
		return nil, false, fmt.Errorf("standard input for the script: %w", got.err)
	}
	if len(got.data) > maxStdin {
		return nil, false, wrong(fmt.Sprintf("standard input for the script is over %d MiB", maxStdin>>20), "run it with --local, which has no such limit")
	}
	return got.data, false, nil
}

// heralding tells of the first answer of a reader.
type heralding struct {
	io.Reader
	first chan struct{}
}

func (h *heralding) Read(p []byte) (int, error) {
	n, err := h.Reader.Read(p)
	select {
	case h.first <- struct{}{}:
	default:
	}
	return n, err
}

// withStdin puts data into options.
func withStdin(o *run.Options, data []byte) {
	if utf8.Valid(data) {
		o.Stdin = string(data)
		return
	}
	o.Stdin, o.StdinEncoding = base64.StdEncoding.EncodeToString(data), "base64"
}
