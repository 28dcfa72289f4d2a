package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"mcpx/api/auth"
	"mcpx/api/rest"
	"mcpx/orchestrator/tool"
)

// exitToolError is the exit code of a call whose tool reports an error.
const exitToolError = 1

// maxArguments bounds the arguments of a call, in bytes.
const maxArguments = 32 << 20

func (a *app) callCommand() *cobra.Command {
	var p place
	var session string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "call NAMESPACE FUNCTION [JSON|@FILE|-]",
		Short: "Call one tool of an MCP server",
		Long: `Call one tool of an MCP server. The arguments are a JSON object: as text, in a file,
or on standard input; without any they are {}.

What the tool returns goes to stdout: text as it is, anything else as JSON. A tool
that reports an error has its text on stderr, and the exit code is 1.`,
		Example: `  mcpx call memory read_graph
  mcpx call filesystem read_text_file '{"path":"notes.txt"}'`,
		Args: takes(cobra.RangeArgs(2, 3)),
		RunE: func(cmd *cobra.Command, args []string) error {
			arguments, err := a.arguments(args[2:])
			if err != nil {
				return err
			}
			return a.withTools(cmd.Context(), &p, true, func(ctx context.Context, t toolbox) error {
				result, err := t.Call(ctx, tool.Call{
					Server: args[0], Tool: args[1], Arguments: arguments, Session: session, Principal: auth.PrincipalLocal,
				})
				if err != nil {
					return err
				}
				return a.showCall(result, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&session, "session", "", "session whose instance of the server is called")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON document with value and raw")
	p.bind(cmd.Flags())
	return cmd
}

// arguments reads the tool's arguments from where they are given.
func (a *app) arguments(given []string) (json.RawMessage, error) {
	if len(given) == 0 {
		return json.RawMessage("{}"), nil
	}
	text, where := []byte(given[0]), "the arguments"
	var err error
	if given[0] == "-" {
		where = "standard input"
		text, err = io.ReadAll(io.LimitReader(a.in, maxArguments+1))
	} else if name, isFile := strings.CutPrefix(given[0], "@"); isFile {
		where = name
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, wrong("arguments: "+err.Error(), "name a file that can be read")
	}
	if len(text) > maxArguments {
		return nil, wrong(fmt.Sprintf("%s: over %d MiB", where, maxArguments>>20), "")
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return nil, wrong(where+": not a JSON object", `write '{"name": "value"}'`)
	}
	return bytes.TrimSpace(text), nil
}

// showCall prints what a tool returned.
func (a *app) showCall(result tool.Result, asJSON bool) error {
	document, err := rest.CallDocumentOf(result)
	if err != nil {
		return err
	}
	switch {
	case asJSON:
		err = a.document(document)
	case result.IsError:
		a.say("%s", strings.TrimSpace(document.Text+" "+document.Note))
	default:
		err = a.showValue(document.Value)
	}
	if err == nil && result.IsError {
		return exitCode(exitToolError)
	}
	return err
}

func (a *app) showValue(value json.RawMessage) error {
	var text *string
	if json.Unmarshal(value, &text) == nil && text != nil {
		_, err := io.WriteString(a.out, strings.TrimSuffix(*text, "\n")+"\n")
		return err
	}
	return a.document(value)
}
