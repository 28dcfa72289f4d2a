// Package tool is the vocabulary of MCP tools: which there are, how a script
// names them, what a call is and what its result means.
package tool

import "encoding/json"

// Tool is one tool of one server, with the names that scripts use for it.
type Tool struct {
	Server       string          `json:"server"` // as the configuration names it
	Name         string          `json:"name"`   // as the server names it
	Title        string          `json:"title,omitempty"`
	Description  string          `json:"description,omitempty"`
	InputSchema  json.RawMessage `json:"inputSchema,omitempty"`
	OutputSchema json.RawMessage `json:"outputSchema,omitempty"`
	// ReadOnly and Destructive are the server's own annotations, nil where it
	// says nothing. They are hints: a policy must not trust them to allow.
	ReadOnly    *bool `json:"readOnly,omitempty"`
	Destructive *bool `json:"destructive,omitempty"`
	// Namespace and Function are identifiers in TypeScript, Python and sh.
	// Among the servers of one configuration a Namespace stands for one server,
	// and within it a Function for one tool.
	Namespace string `json:"namespace"`
	Function  string `json:"function"`
}

// Server is a server with the tools that are known of it.
type Server struct {
	Name        string `json:"name"`
	Namespace   string `json:"namespace"`
	Description string `json:"description,omitempty"`
	Tools       []Tool `json:"tools"`
	// Err says why its tools are not known, or why they may be out of date.
	Err string `json:"error,omitempty"`
}

// Call asks for one call of a tool. Server and Tool may be the names or the
// identifiers. No Arguments means {}.
type Call struct {
	Server    string
	Tool      string
	Arguments json.RawMessage
	// Run, Session and Principal say on whose behalf, for servers that are not
	// shared by all.
	Run       string
	Session   string
	Principal string
	// Progress is told how far the server says it is; total is 0 when it does
	// not know. It may be nil, and is not called after the call returned.
	Progress func(done, total float64, message string)
}

// Result is what the server answered. A tool that ran and reports an error is
// a Result with IsError, not an error.
type Result struct {
	Raw     json.RawMessage // the whole CallToolResult as the server sent it
	IsError bool
	// Note says for a result with IsError that the tool's schema changed of
	// late, and how: the likeliest reason why a script that worked does not.
	Note string
}
