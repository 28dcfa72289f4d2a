// Package endpoint is a client of a run's socket for shell scripts: what
// `mcpx-init call` and its like do. It is small, for it is part of init.
package endpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Exit codes.
const (
	exitToolError = 1 // the tool reported an error
	exitFailure   = 2 // not carried out, or unknown whether; also wrong usage
)

// Usage is what the commands look like.
const Usage = `usage: mcpx-init call [--raw] NAMESPACE TOOL [JSON|-]   prints the tool's value
       mcpx-init emit|result JSON | - | -s TEXT         hands out a value; sets the run's
       mcpx-init log LEVEL MESSAGE...                   debug, info, warn or error
       mcpx-init artifact NAME FILE|- [MIME]            prints what it became
       mcpx-init tools                                  prints what may be called
`

// Command is one call of the program.
type Command struct {
	Socket string // path of the run's socket
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Knows tells whether name is one of the commands here.
func Knows(name string) bool {
	switch name {
	case "call", "emit", "result", "log", "artifact", "tools":
		return true
	}
	return false
}

// errUsage is told with the usage.
var errUsage = errors.New("wrong usage")

// toolError is what a tool itself reports.
type toolError string

func (e toolError) Error() string { return string(e) }

// Run carries out the command, and yields the exit code.
func (c Command) Run(ctx context.Context, args []string) int {
	if len(args) == 2 && (args[1] == "-h" || args[1] == "--help") {
		io.WriteString(c.Stdout, Usage) //nolint:errcheck // nobody is there to read it
		return 0
	}
	err := c.dispatch(ctx, args[0], args[1:])
	if err == nil {
		return 0
	}
	if errors.Is(err, errUsage) {
		io.WriteString(c.Stderr, Usage) //nolint:errcheck // nobody is there to read it
		return exitFailure
	}
	fmt.Fprintf(c.Stderr, "mcpx: %v\n", err)
	if _, ok := errors.AsType[toolError](err); ok {
		return exitToolError
	}
	return exitFailure
}

func (c Command) dispatch(ctx context.Context, name string, args []string) error {
	switch name {
	case "call":
		return c.call(ctx, args)
	case "emit", "result":
		return c.value(ctx, name, args)
	case "log":
		return c.line(ctx, args)
	case "artifact":
		return c.artifact(ctx, args)
	case "tools":
		if len(args) == 0 {
			return c.copy(ctx, request{method: "GET", path: "/v1/tools"})
		}
	}
	return errUsage
}

func (c Command) call(ctx context.Context, args []string) error {
	raw := len(args) > 0 && args[0] == "--raw"
	if raw {
		args = args[1:]
	}
	args = operands(args)
	if len(args) < 2 || len(args) > 3 {
		return errUsage
	}
	arguments := "{}"
	if len(args) == 3 {
		arguments = args[2]
	}
	body, size := c.text(arguments)
	answer, err := c.ask(ctx, request{method: "POST", path: "/v1/call/" + segment(args[0]) + "/" + segment(args[1]),
		contentType: "application/json", body: body, size: size})
	if err != nil {
		return err
	}
	defer answer.conn.Close()
	var told struct {
		Value   json.RawMessage `json:"value"`
		Raw     json.RawMessage `json:"raw"`
		IsError bool            `json:"isError"`
		Text    string          `json:"text"`
	}
	if err := json.NewDecoder(answer.body).Decode(&told); err != nil {
		return fmt.Errorf("read the answer: %w", unexpected(err))
	}
	switch {
	case raw:
		return c.print(told.Raw)
	case told.IsError && told.Text == "":
		return toolError("the tool reported an error")
	case told.IsError:
		return toolError(told.Text)
	}
	return c.print(told.Value)
}

// print writes text without its quotes, everything else as JSON.
func (c Command) print(value json.RawMessage) error {
	var text string
	if json.Unmarshal(value, &text) != nil || string(value) == "null" {
		text = string(value)
	}
	_, err := io.WriteString(c.Stdout, text+"\n")
	return err
}

func (c Command) value(ctx context.Context, name string, args []string) error {
	var body io.Reader
	var size int64
	switch {
	case len(args) == 2 && args[0] == "-s":
		text, err := json.Marshal(args[1])
		if err != nil {
			return err
		}
		body, size = strings.NewReader(string(text)), int64(len(text))
	case len(operands(args)) == 1:
		body, size = c.text(operands(args)[0])
	default:
		return errUsage
	}
	return c.silent(ctx, request{method: "POST", path: "/v1/" + name, contentType: "application/json", body: body, size: size})
}

func (c Command) line(ctx context.Context, args []string) error {
	args = operands(args)
	if len(args) < 2 {
		return errUsage
	}
	body, err := json.Marshal(map[string]string{"level": args[0], "message": strings.Join(args[1:], " ")})
	if err != nil {
		return err
	}
	return c.silent(ctx, request{method: "POST", path: "/v1/log", contentType: "application/json",
		body: strings.NewReader(string(body)), size: int64(len(body))})
}

func (c Command) artifact(ctx context.Context, args []string) error {
	args = operands(args)
	if len(args) < 2 || len(args) > 3 {
		return errUsage
	}
	r := request{method: "POST", path: "/v1/artifacts?name=" + segment(args[0]), body: c.Stdin, size: -1}
	if len(args) == 3 {
		if strings.ContainsAny(args[2], "\r\n") {
			return fmt.Errorf("%q is no media type", args[2])
		}
		r.contentType = args[2]
	}
	if args[1] != "-" {
		file, err := os.Open(args[1])
		if err != nil {
			return err
		}
		defer file.Close()
		r.body = file
		if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
			r.size = info.Size()
		}
	}
	return c.copy(ctx, r)
}

// text is an argument's text, or standard input for "-".
func (c Command) text(argument string) (body io.Reader, size int64) {
	if argument == "-" {
		return c.Stdin, -1
	}
	return strings.NewReader(argument), int64(len(argument))
}

// ask sends and makes an error of an answer other than 2xx.
func (c Command) ask(ctx context.Context, r request) (*response, error) {
	answer, err := send(ctx, c.Socket, r)
	if err != nil {
		return nil, err
	}
	if answer.status/100 == 2 {
		return answer, nil
	}
	defer answer.conn.Close()
	var problem struct {
		Detail string `json:"detail"`
		Code   string `json:"code"`
		Hint   string `json:"hint"`
	}
	if json.NewDecoder(io.LimitReader(answer.body, maxProblem)).Decode(&problem) != nil || problem.Detail == "" {
		return nil, fmt.Errorf("%s %s: HTTP status %d", r.method, r.path, answer.status)
	}
	text := problem.Detail
	if problem.Code != "" {
		text += " [" + problem.Code + "]"
	}
	if problem.Hint != "" {
		text += "; " + problem.Hint
	}
	return nil, errors.New(text)
}

const maxProblem = 1 << 20

func (c Command) silent(ctx context.Context, r request) error {
	answer, err := c.ask(ctx, r)
	if err != nil {
		return err
	}
	return answer.conn.Close()
}

func (c Command) copy(ctx context.Context, r request) error {
	answer, err := c.ask(ctx, r)
	if err != nil {
		return err
	}
	defer answer.conn.Close()
	if _, err := io.Copy(c.Stdout, answer.body); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	_, err = io.WriteString(c.Stdout, "\n")
	return err
}

// operands leaves out a -- that ends the options.
func operands(args []string) []string {
	if len(args) > 0 && args[0] == "--" {
		return args[1:]
	}
	return args
}

// segment escapes a path's segment.
func segment(text string) string {
	const safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-~"
	dots := strings.Trim(text, ".") == ""
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; strings.IndexByte(safe, c) >= 0 || c == '.' && !dots {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
