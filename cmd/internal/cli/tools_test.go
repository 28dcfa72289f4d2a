package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// toolServer is an MCP server on stdio, for the scripts' configurations.
func toolServer() {
	server := sdk.NewServer(&sdk.Implementation{Name: "toolserver", Version: "1"}, nil)
	type words struct {
		Text string `json:"text" jsonschema:"what to say"`
	}
	sdk.AddTool(server, &sdk.Tool{Name: "say-it", Description: "Says it back."}, func(_ context.Context, _ *sdk.CallToolRequest, in words) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: in.Text}}}, nil, nil
	})
	sdk.AddTool(server, &sdk.Tool{Name: "count", Description: "Counts letters."}, func(_ context.Context, _ *sdk.CallToolRequest, in words) (*sdk.CallToolResult, map[string]int, error) {
		return nil, map[string]int{"letters": len(in.Text)}, nil
	})
	sdk.AddTool(server, &sdk.Tool{Name: "fail"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return nil, nil, errors.New("it cannot be done")
	})
	sdk.AddTool(server, &sdk.Tool{Name: "picture", Description: "A picture."}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.ImageContent{MIMEType: "image/png", Data: []byte("\x89PNG")}}}, nil, nil
	})
	if err := server.Run(context.Background(), &sdk.StdioTransport{}); err != nil {
		os.Exit(1)
	}
}

// mcpClient calls tools of a server: mcpclient REVISION URL|COMMAND... -- TOOL JSON [TOOL JSON]...
// It prints the text of each result and each artifact that one links to.
func mcpClient() {
	if err := callAll(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mcpclient:", err)
		os.Exit(1)
	}
}

func callAll(ctx context.Context, args []string) error {
	revision, args := args[0], args[1:]
	at := 0
	for args[at] != "--" {
		at++
	}
	var transport sdk.Transport
	if strings.HasPrefix(args[0], "http") {
		token, err := os.ReadFile("token")
		if err != nil {
			return err
		}
		transport = &sdk.StreamableClientTransport{Endpoint: args[0], HTTPClient: &http.Client{Transport: bearing(strings.TrimSpace(string(token)))}}
	} else {
		command := exec.Command(args[0], args[1:at]...)
		command.Stderr = os.Stderr
		transport = &sdk.CommandTransport{Command: command}
	}
	client := sdk.NewClient(&sdk.Implementation{Name: "mcpclient", Version: "1"}, nil)
	session, err := client.Connect(ctx, transport, &sdk.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		return err
	}
	fmt.Println("revision", session.InitializeResult().ProtocolVersion)
	for call := args[at+1:]; len(call) > 1; call = call[2:] {
		if err := callOne(ctx, session, call[0], call[1]); err != nil {
			return err
		}
	}
	return session.Close()
}

func callOne(ctx context.Context, session *sdk.ClientSession, name, arguments string) error {
	result, err := session.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
	if err != nil {
		return err
	}
	fmt.Println("isError", result.IsError)
	for _, content := range result.Content {
		switch c := content.(type) {
		case *sdk.TextContent:
			fmt.Println(c.Text)
		case *sdk.ResourceLink:
			read, err := session.ReadResource(ctx, &sdk.ReadResourceParams{URI: c.URI})
			if err != nil {
				return err
			}
			fmt.Printf("resource %s %q\n", c.Name, read.Contents[0].Text+string(read.Contents[0].Blob))
		}
	}
	return nil
}

type bearing string

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
