package script

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
	"mcpx/policies"
)

// Private is the empty writable directory that every container has.
const Private = "/work"

// Workdir is where a script starts.
type Workdir struct {
	Inside string // path in the container
	// Source is the directory of the host that is mounted there; "": none, the
	// directory is empty and the run's own.
	Source   string
	Writable bool
	Warnings []run.Log
}

// ResolveWorkdir says what the working directory is under a cwd policy. The
// host's directories are shown only as far as rules allow. shared tells that
// the caller sees this machine's disk; configDir is the user's own
// configuration directory.
func ResolveWorkdir(policy, callerCwd string, s Script, shared bool, rules []policies.MountRule, configDir string) (Workdir, error) {
	cwd, err := cleanCwd(callerCwd)
	if err != nil {
		return Workdir{}, err
	}
	switch policy {
	case "", run.CwdCaller:
		return callerDir(cwd, shared, rules)
	case run.CwdScript:
		return ownDir(s.Dir, "the script has no directory: its text came without a file", rules)
	case run.CwdConfig:
		if !shared {
			cwd = ""
		}
		return ownDir(nearestConfig(cwd, configDir), "there is no mcpx configuration directory", rules)
	case run.CwdWorkdir:
		return Workdir{Inside: Private}, nil
	}
	return Workdir{}, &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: "options.cwdPolicy",
		Message: brief(policy) + " is unknown", Hint: "one of caller, script, config, workdir"}
}

// callerDir shows the caller's directory at its own path, or an empty one there.
func callerDir(cwd string, shared bool, rules []policies.MountRule) (Workdir, error) {
	switch {
	case cwd == "":
		return Workdir{Inside: Private}, nil
	case !shared && protected(cwd):
		return private(fmt.Sprintf("%s is the container's own; the script starts in %s, which is empty", brief(cwd), Private)), nil
	case !shared:
		w := private(fmt.Sprintf("%s is the caller's and is not here, because the caller's files are not shared with this machine; the script starts in an empty directory of that name. Send what it needs as options.files", brief(cwd)))
		w.Inside = cwd
		return w, nil
	}
	if err := checkDir(cwd); err != nil {
		return Workdir{}, err
	}
	w, mounted, err := mount(cwd, rules)
	if err != nil || mounted {
		return w, err
	}
	if protected(cwd) {
		return private(fmt.Sprintf("%s is the container's own and can't be shown in it; the script starts in %s, which is empty", brief(cwd), Private)), nil
	}
	w = private(fmt.Sprintf("%s is not shown to the script, which starts in an empty directory of that name; the policy would allow it by %s", brief(cwd), allowLine(cwd)))
	w.Inside = cwd
	return w, nil
}

// ownDir shows the directory of a script or a configuration, read-only.
func ownDir(dir, none string, rules []policies.MountRule) (Workdir, error) {
	if dir == "" {
		return private(fmt.Sprintf("%s; the script starts in %s, which is empty", none, Private)), nil
	}
	if err := checkDir(dir); err != nil {
		return Workdir{}, err
	}
	w, mounted, err := mount(dir, rules)
	if err != nil || mounted {
		w.Writable = false
		return w, err
	}
	return private(fmt.Sprintf("%s is not shown to the script, which starts in %s; the policy would allow it by %s", brief(dir), Private, allowLine(dir))), nil
}

func private(why string) Workdir {
	return Workdir{Inside: Private, Warnings: []run.Log{{Level: "warn", Code: "cwd_not_mounted", Message: why}}}
}

func allowLine(dir string) string {
	return fmt.Sprintf("mounts: {allow: [{path: %s, writable: false}]}", brief(dir))
}

// mount shows dir if a rule covers its real path. A path that lies in an
// allowed directory by its name only is an escape and refused.
func mount(dir string, rules []policies.MountRule) (Workdir, bool, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Workdir{}, false, dirError(dir, err)
	}
	rule, ok := covering(real, rules)
	switch {
	case ok && protected(dir):
		return Workdir{}, false, nil
	case ok:
		return Workdir{Inside: dir, Source: real, Writable: rule.Writable}, true, nil
	case named(dir, rules):
		return Workdir{}, false, &run.Error{Code: run.CodeCwdNotAllowed, Class: errdefs.ErrPermissionDenied, Field: fieldCwd,
			Message: fmt.Sprintf("%s leads to %s, out of what the policy allows", brief(dir), brief(real)),
			Hint:    "the policy would allow it by " + allowLine(real)}
	}
	return Workdir{}, false, nil
}

// covering is the nearest rule whose real path holds real.
func covering(real string, rules []policies.MountRule) (policies.MountRule, bool) {
	best, found := policies.MountRule{}, false
	depth := -1
	for _, rule := range rules {
		root, err := filepath.EvalSymlinks(rule.Path)
		if err == nil && within(root, real) && len(root) > depth {
			best, found, depth = rule, true, len(root)
		}
	}
	return best, found
}

// named tells whether dir is spelled as a path below an allowed directory.
func named(dir string, rules []policies.MountRule) bool {
	for _, rule := range rules {
		root, err := filepath.EvalSymlinks(rule.Path)
		if within(filepath.Clean(rule.Path), dir) || err == nil && within(root, dir) {
			return true
		}
	}
	return false
}

// nearestConfig is the first configuration directory from cwd up, else the user's.
func nearestConfig(cwd, user string) string {
	if cwd != "" {
		for _, dir := range above(cwd) {
			for _, config := range configDirs() {
				if path := filepath.Join(dir, config); isDir(path) {
					return path
				}
			}
		}
	}
	if user != "" && isDir(user) {
		return filepath.Clean(user)
	}
	return ""
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return dirError(dir, err)
	}
	if !info.IsDir() {
		return dirError(dir, errors.New("it is not a directory"))
	}
	return nil
}

func dirError(dir string, err error) error {
	e := &run.Error{Code: run.CodeCwdNotFound, Class: errdefs.ErrNotFound, Field: fieldCwd,
		Message: "there is no directory " + brief(dir), Hint: "create it, or leave options.cwd out"}
	switch {
	case errors.Is(err, fs.ErrPermission):
		e.Code, e.Class = run.CodeCwdNotAllowed, errdefs.ErrPermissionDenied
		e.Message, e.Hint = "the daemon may not look at "+brief(dir), ""
	case !missing(err):
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			err = at.Err
		}
		e.Message = brief(dir) + " can't be a working directory: " + err.Error()
	}
	return e
}

// protected tells whether something that a container needs would be hidden if
// another directory stood at path.
func protected(path string) bool {
	for _, exact := range []string{"/", "/tmp", "/var", "/usr", Private} {
		if path == exact {
			return true
		}
	}
	if within("/usr/src", path) || within("/usr/local/src", path) {
		return false
	}
	for _, root := range []string{
		"/bin", "/boot", "/dev", "/etc", "/inbox", "/lib", "/lib32", "/lib64", "/libx32", "/mcpx", "/outbox",
		"/proc", "/run", "/sbin", "/sys", "/usr", "/var/run",
	} {
		if within(root, path) {
			return true
		}
	}
	return false
}
