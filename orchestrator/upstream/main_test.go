package upstream_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// The test binary is also the servers that the tests call.
const modeVariable = "UPSTREAM_TEST_SERVER"

func TestMain(m *testing.M) {
	switch os.Getenv(modeVariable) {
	case "":
		goleak.VerifyTestMain(m)
	case "sdk":
		serveSDK()
	case "raw":
		serveRaw()
	case "mute":
		stubborn()
		select {}
	case "old": // hangs at a request it does not know
		serveOld()
	case "crash":
		fmt.Fprintln(os.Stderr, "cannot open the database, token="+os.Getenv("API_TOKEN"))
		os.Exit(3)
	}
}

// stubborn ignores what asks it to end.
func stubborn() { signal.Ignore(syscall.SIGTERM, syscall.SIGINT) }

type none struct{}

func serveSDK() {
	server := newServer()
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type echoInput struct {
	Text  string `json:"text" jsonschema:"what to say"`
	Times int    `json:"times,omitempty"`
}

type reshapedInput struct {
	Message string `json:"message"`
	Times   string `json:"times,omitempty"`
}

func says(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}

// newServer has a tool for each way to behave.
func newServer() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, do func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error)) {
		mcp.AddTool(server, &mcp.Tool{Name: name, Description: name + " misbehaves"},
			func(ctx context.Context, req *mcp.CallToolRequest, _ none) (*mcp.CallToolResult, any, error) {
				result, err := do(ctx, req)
				return result, nil, err
			})
	}
	mcp.AddTool(server, &mcp.Tool{Name: "echo", Description: "says what it is told", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in echoInput) (*mcp.CallToolResult, any, error) {
			return says(strings.Repeat(in.Text, max(in.Times, 1))), nil, nil
		})
	add("pid", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return says(fmt.Sprint(os.Getpid())), nil
	})
	add("environment", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return says(strings.Join(os.Environ(), "\n")), nil
	})
	add("die", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "fatal: "+os.Getenv("API_TOKEN")+" was refused")
		os.Exit(7)
		return nil, nil
	})
	add("hang", func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		if path := os.Getenv("CANCELLED_FILE"); path != "" {
			os.WriteFile(path, []byte("told"), 0o600)
		}
		return nil, ctx.Err()
	})
	add("stop", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		select {}
	})
	add("fail", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		result := says("it is not to be")
		result.IsError = true
		return result, nil
	})
	add("progress", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i := range 5 {
			req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(),
				Progress: float64(i + 1), Total: 5, Message: "step"})
		}
		return says("done"), nil
	})
	add("spawn", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		inGroup := exec.Command("sleep", "1000")
		detached := exec.Command("sleep", "1000")
		detached.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		inGroup.Stdout, detached.Stdout = os.Stdout, os.Stdout
		if err := inGroup.Start(); err != nil {
			return nil, err
		}
		if err := detached.Start(); err != nil {
			return nil, err
		}
		return says(fmt.Sprintf("%d %d", inGroup.Process.Pid, detached.Process.Pid)), nil
	})
	add("rename", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		server.RemoveTools("echo")
		mcp.AddTool(server, &mcp.Tool{Name: "echo_text"}, func(context.Context, *mcp.CallToolRequest, echoInput) (*mcp.CallToolResult, any, error) {
			return says("new"), nil, nil
		})
		return says("renamed"), nil
	})
	add("reshape", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in reshapedInput) (*mcp.CallToolResult, any, error) {
			result := says("no " + in.Message)
			result.IsError = true
			return result, nil, nil
		})
		return says("reshaped"), nil
	})
	add("slow", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		timer := time.NewTimer(100 * time.Millisecond)
		defer timer.Stop()
		<-timer.C
		return says(fmt.Sprint(os.Getpid())), nil
	})
	return server
}

// serveRaw writes answers that no SDK would.
func serveRaw() {
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	fmt.Println("Welcome to the raw server!") // on stdout, as some do
	fmt.Println(`{"level":"info","msg":"a log line"}`)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var req struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		if json.Unmarshal(line, &req) != nil || req.ID == nil {
			continue
		}
		rawAnswer(out, string(req.ID), req.Method, req.Params.Name)
		out.Flush()
	}
}

func rawAnswer(out *bufio.Writer, id, method, name string) {
	answer := func(result string) { fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", id, result) }
	switch method {
	case "initialize":
		fmt.Fprintln(out, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`) // too early
		answer(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"raw","version":"1"}}`)
		return
	case "ping":
		answer(`{}`)
		return
	case "tools/list":
		var tools []string
		for _, t := range []string{"ok", "numbers", "strange", "big", "big-id-last", "bad-json", "bad-json-no-id", "bad-utf8", "not-a-result", "flood", "refuse", "structured"} {
			tools = append(tools, fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object","properties":{"zeta":{},"alpha":{}}}}`, t))
		}
		answer(`{"tools":[` + strings.Join(tools, ",") + `]}`)
		return
	case "tools/call":
	default:
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", id)
		return
	}
	switch name {
	case "ok":
		answer(`{"content":[{"type":"text","text":"fine"}]}`)
	case "numbers":
		answer(`{"content":[],"structuredContent":{"id":9007199254740993},"unheard":"of"}`)
	case "strange":
		answer(`{"content":[{"type":"hologram","data":1}]}`)
	case "structured":
		answer(`{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1}}`)
	case "big":
		answer(`{"content":[{"type":"text","text":"` + strings.Repeat("x", 50<<20) + `"}]}`)
	case "big-id-last":
		fmt.Fprintf(out, `{"result":{"content":[{"type":"text","text":"%s"}]},"jsonrpc":"2.0","id":%s}`+"\n", strings.Repeat("x", 5<<20), id)
	case "bad-json":
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"result":{"content":[oops`+"\n", id)
	case "bad-json-no-id":
		fmt.Fprintf(out, `{"jsonrpc":"2.0","result":{"content":[oops`+"\n")
	case "bad-utf8":
		answer("{\"content\":[{\"type\":\"text\",\"text\":\"\xff\xfe\"}]}")
	case "not-a-result":
		answer(`[1,2]`)
	case "flood":
		for i := range 20000 {
			fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%d"}}`+"\n", i)
			fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`+"\n")
			fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 20))
		}
		answer(`{"content":[{"type":"text","text":"dry"}]}`)
	case "refuse":
		fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"bad token %s"}}`+"\n", id, os.Getenv("API_TOKEN"))
	}
}

// serveOld answers initialize first, or nothing ever.
func serveOld() {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil || !strings.Contains(string(line), `"initialize"`) {
		select {}
	}
	fmt.Println(`{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}}`)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var req struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(line, &req) == nil && req.Method == "tools/list" {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"veteran","inputSchema":{"type":"object"}}]}}`+"\n", req.ID)
		}
	}
}
