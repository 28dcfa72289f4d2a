package client

import (
	"fmt"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
	"mcpx/orchestrator/tool"
)

// Declarations are the types of one server's tools in a language, as the client
// for that language has them, for people and models to read. "" is TypeScript.
func Declarations(lang string, server tool.Server) (string, error) {
	p := &printer{}
	switch lang {
	case "", TypeScript:
		p.line("// Tool<Args, Result> is (args: Args) => Promise<Result>; ToolWithOptionalArguments takes none, too")
		p.line("declare const %s: $%s.Namespace;", server.Namespace, server.Namespace)
		p.namespace(server)
	case Python:
		for _, t := range server.Tools {
			p.pythonTool(server, t)
		}
		p.pythonNamespace(server)
	default:
		return "", &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Field: "lang",
			Message: fmt.Sprintf("there are no declarations in language %q", lang), Hint: fmt.Sprintf("there are some in %s and %s", TypeScript, Python)}
	}
	return p.String(), nil
}
