package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpx/api/auth"
	"mcpx/api/problem"
	"mcpx/cmd/internal/daemon"
	"mcpx/images"
	"mcpx/policies"
)

func (a *app) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check a policy file, or explain what a script would get",
		Args:  takes(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.policyCheckCommand(), a.policyExplainCommand(), a.policyShowCommand())
	return cmd
}

func (a *app) policyCheckCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Tell everything that is wrong with a policy file",
		Args:  takes(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			data, err := os.ReadFile(args[0])
			if err != nil {
				return wrong(err.Error(), "name a policy file")
			}
			problems := policies.Check(data)
			if asJSON {
				err = a.document(append([]policies.Problem{}, problems...))
			} else {
				err = a.listProblems(args[0], problems)
			}
			if err != nil {
				return err
			}
			for _, p := range problems {
				if p.Severity == policies.SeverityError {
					return exitCode(problem.ExitUsage)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON document")
	return cmd
}

func (a *app) listProblems(file string, problems []policies.Problem) error {
	if len(problems) == 0 {
		_, err := fmt.Fprintf(a.out, "%s: ok\n", file)
		return err
	}
	for _, p := range problems {
		if _, err := fmt.Fprintf(a.out, "%s:%s\n", file, visible(p.String())); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) policyExplainCommand() *cobra.Command {
	var file, runtime, timeout string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Tell which interpreter a script would get, with what limits, and why; nothing is run",
		Args:  takes(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			config, _, err := a.config()
			if err != nil {
				return err
			}
			document, err := daemon.LoadPolicies(config)
			if err != nil {
				return err
			}
			script, err := scriptFacts(config, file, runtime)
			if err != nil {
				return err
			}
			ask := policies.Facts{Principal: auth.PrincipalLocal}
			if timeout != "" {
				if ask.Timeout, err = time.ParseDuration(timeout); err != nil {
					return wrong(fmt.Sprintf("--timeout %q is not a duration", timeout), `write it as "30s"`)
				}
			}
			e, err := document.Explain(script, ask)
			if err != nil {
				return err
			}
			return a.explain(e, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&file, "file", "", "script to look at")
	f.StringVar(&runtime, "runtime", "", "runtime to ask for")
	f.StringVar(&timeout, "timeout", "", "timeout to ask for")
	f.BoolVar(&asJSON, "json", false, "print a JSON document")
	cmd.MarkFlagsOneRequired("file", "runtime")
	return cmd
}

// scriptFacts is what the choice of an interpreter needs to know of a file.
func scriptFacts(config daemon.Config, file, runtime string) (images.Facts, error) {
	facts := images.Facts{Runtime: runtime, Setting: config.Interpreter}
	if file == "" {
		return facts, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return images.Facts{}, wrong(err.Error(), "name a script with --file")
	}
	facts.Text, facts.FileName = text, filepath.Base(file)
	return facts, nil
}

func (a *app) explain(e policies.Explanation, asJSON bool) error {
	if asJSON {
		if err := a.document(e); err != nil {
			return err
		}
	} else if err := a.explainInWords(e); err != nil {
		return err
	}
	if e.Denied != nil {
		return exitCode(problem.Of(e.Denied).Exit)
	}
	return nil
}

func (a *app) explainInWords(e policies.Explanation) error {
	rows := [][]string{
		{"interpreter", e.Why, e.Interpreter},
		{"command", "", strings.Join(append(slices.Clone(e.Argv), e.ScriptName), " ")},
		{"policy", "", e.Policy},
	}
	for _, s := range e.Settings {
		rows = append(rows, []string{s.Field, s.Why, s.Value})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	for _, w := range e.Warnings {
		a.say("warning: %s", w.Message)
	}
	if e.Denied != nil {
		a.say("denied: %s", sentence(e.Denied))
	}
	return nil
}

func (a *app) policyShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show",
		Short: "Print the policy file in use; without one, the built-in policy",
		Args:  takes(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			config, _, err := a.config()
			if err != nil {
				return err
			}
			text := []byte(policies.BuiltinText())
			if config.Policy != "" {
				if text, err = os.ReadFile(config.Policy); err != nil {
					return wrong("policy: "+err.Error(), "name another file with --policy")
				}
			}
			_, err = a.out.Write(text)
			return err
		},
	}
}
