package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"mcpx/api/problem"
	"mcpx/orchestrator/run"
)

// exitCode ends a command with a code about which all has been said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exit tells what err says, in one line, and yields the exit code for it.
func (a *app) exit(err error) int {
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	if errors.Is(err, syscall.EPIPE) {
		return 128 + int(syscall.SIGPIPE) // as if the signal had ended us; nobody reads
	}
	if !a.started {
		err = usage(err)
	}
	a.say("%s", sentence(err))
	return codeOf(err)
}

func codeOf(err error) int {
	if errors.Is(err, run.ErrCancelled) {
		return problem.ExitCancelled
	}
	return problem.Of(err).Exit
}

// sentence is an error with what can be done about it.
func sentence(err error) string {
	known, ok := errors.AsType[*run.Error](err)
	if !ok {
		return err.Error()
	}
	text := known.Message
	if field := flagOf(known.Field); field != "" {
		text = field + ": " + text
	}
	if len(known.Searched) > 0 {
		text += "; searched " + strings.Join(known.Searched, ", ")
	}
	if known.Hint != "" {
		text += " (" + known.Hint + ")"
	}
	return optionName.ReplaceAllStringFunc(text, flagOf)
}

// optionName is an option as requests spell it.
var optionName = regexp.MustCompile(`\boptions\.[a-zA-Z]+`)

// flagOf is what a request's field is called here: options.cwdPolicy is
// --cwd-policy, and which script is meant needs no name.
func flagOf(field string) string {
	option, isOption := strings.CutPrefix(field, "options.")
	switch {
	case field == "source" || field == "file":
		return ""
	case !isOption:
		return field
	}
	var flag strings.Builder
	for _, r := range option {
		if unicode.IsUpper(r) {
			flag.WriteByte('-')
		}
		flag.WriteRune(unicode.ToLower(r))
	}
	return "--" + flag.String()
}

// usage makes an error about how a command was called of what cobra says.
func usage(err error) error {
	if _, ok := errors.AsType[*run.Error](err); ok {
		return err
	}
	return wrong(err.Error(), "mcpx --help")
}

func wrong(message, hint string) error {
	return &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Message: message, Hint: hint}
}

// takes wraps a check of arguments so that its error names the command.
func takes(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return wrong(err.Error(), cmd.CommandPath()+" --help")
		}
		return nil
	}
}

// interruptible ends the context with run.ErrCancelled at the first signal that
// asks us to go; the second one ends the process at once. What is left then is
// swept by whoever starts next.
func interruptible(ctx context.Context) (context.Context, func()) {
	// A reader of our output who goes away must not end us before the run is
	// over. Not signal.Ignore: children would inherit that.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	over := make(chan struct{})
	go func() {
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			case <-signals:
			}
			if n > 0 {
				os.Exit(problem.ExitCancelled)
			}
			cancel(run.ErrCancelled)
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		signal.Stop(pipe)
		close(over)
		cancel(nil)
	}
}
