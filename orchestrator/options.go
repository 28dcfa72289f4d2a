package orchestrator

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// settings are a request's options, checked and decoded.
type settings struct {
	timeout  time.Duration // 0: the policy's
	stdin    []byte
	warnings []run.Log
}

// maxArgs bounds the script's arguments; with the environment they have to fit
// what the kernel takes (ARG_MAX is a quarter of the stack limit, 2 MiB).
const maxArgs = 512 << 10

// checkOptions refuses what is malformed, and what would run something else
// than was asked for; what merely does not apply becomes a warning.
func checkOptions(o run.Options) (settings, error) {
	s := settings{}
	checks := []func(run.Options, *settings) error{
		checkTimeout, checkStdin, checkArgs, checkWords, checkUnbuilt,
	}
	for _, check := range checks {
		if err := check(o, &s); err != nil {
			return settings{}, err
		}
	}
	return s, nil
}

func checkTimeout(o run.Options, s *settings) error {
	if o.Timeout == "" {
		return nil
	}
	timeout, err := time.ParseDuration(o.Timeout)
	if err != nil || timeout <= 0 {
		return invalid("options.timeout", fmt.Sprintf("%q is not a duration above zero", o.Timeout), `write it as "30s" or "1m30s"`)
	}
	s.timeout = timeout
	return nil
}

func checkStdin(o run.Options, s *settings) error {
	switch o.StdinEncoding {
	case "":
		s.stdin = []byte(o.Stdin)
	case "base64":
		raw, err := base64.StdEncoding.DecodeString(o.Stdin)
		if err != nil {
			return invalid("options.stdin", "not standard base64: "+err.Error(), "")
		}
		s.stdin = raw
	default:
		return invalid("options.stdinEncoding", fmt.Sprintf("%q is unknown", o.StdinEncoding), `leave it out, or "base64"`)
	}
	return nil
}

func checkArgs(o run.Options, _ *settings) error {
	total := 0
	for i, arg := range o.Args {
		if strings.ContainsRune(arg, 0) {
			return invalid(fmt.Sprintf("options.args[%d]", i), "holds a NUL byte", "")
		}
		if total += len(arg) + 1 + pointerBytes; total > maxArgs || len(arg) >= maxArg {
			return &run.Error{Code: run.CodeTooLarge, Class: errdefs.ErrOutOfRange, Field: fmt.Sprintf("options.args[%d]", i),
				Message: fmt.Sprintf("arguments have at most %d bytes together, one at most %d", maxArgs, maxArg-1),
				Hint:    "send it as options.stdin"}
		}
	}
	return nil
}

// pointerBytes is what the kernel counts for each argument beside its bytes.
const pointerBytes = 8

// maxArg is the kernel's limit for one string of argv or environment (MAX_ARG_STRLEN, 32 pages).
const maxArg = 128 << 10

// words are the options that take one of a few words.
func checkWords(o run.Options, _ *settings) error {
	delivery := ""
	if o.Artifacts != nil {
		delivery = o.Artifacts.Delivery
	}
	for _, w := range []struct {
		field, value string
		known        []string
	}{
		{"options.output", o.Output, []string{run.OutputText, run.OutputStructured, run.OutputStream}},
		{"options.cwdPolicy", o.CwdPolicy, []string{run.CwdCaller, run.CwdScript, run.CwdConfig, run.CwdWorkdir}},
		{"options.typecheck", o.Typecheck, []string{"off", "on", "strict"}},
		{"options.artifacts.delivery", delivery, []string{"reference", "inline", "stream"}},
	} {
		if w.value != "" && !slices.Contains(w.known, w.value) {
			return invalid(w.field, fmt.Sprintf("%q is unknown", w.value), "one of "+strings.Join(w.known, ", "))
		}
	}
	return nil
}

// checkUnbuilt deals with the options that this version does not carry out.
// Those that would change what runs or what comes back are refused.
func checkUnbuilt(o run.Options, s *settings) error {
	for _, u := range []struct {
		field string
		set   bool
	}{
		{"options.placeholders", len(o.Placeholders) > 0},
		{"options.launcher", o.Launcher != "" && o.Launcher != "none"},
		{"options.launcherName", o.LauncherName != "" && o.LauncherName != "none"},
		{"options.phases", o.Phases != nil},
		{"options.inputs", len(o.Inputs) > 0},
		{"options.artifacts.dir", o.Artifacts != nil && o.Artifacts.Dir != ""},
	} {
		if u.set {
			return &run.Error{Code: run.CodeUnsupportedOption, Class: errdefs.ErrInvalidArgument, Field: u.field,
				Message: "this version cannot do it", Hint: "leave it out; it would change what runs, so it is not ignored"}
		}
	}
	for _, w := range []struct {
		field string
		set   bool
	}{
		{"options.typecheck", o.Typecheck != "" && o.Typecheck != "off"},
		{"options.allowRepeat", len(o.AllowRepeat) > 0},
	} {
		if w.set {
			s.warnings = append(s.warnings, run.Log{Level: "warn", Code: "option_not_applied", Message: w.field + " does not apply to this run"})
		}
	}
	return nil
}

func invalid(field, message, hint string) error {
	return &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: field, Message: message, Hint: hint}
}
