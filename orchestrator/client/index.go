package client

import (
	"bytes"
	"encoding/json"

	"mcpx/orchestrator/tool"
)

// entry is what a runtime knows of a namespace.
type entry struct {
	Server string `json:"server"`
	// Open: the server's tools are not known, so any name is passed on.
	Open bool `json:"open,omitempty"`
	// Tools are the tools' own names by function.
	Tools map[string]string `json:"tools"`
}

// index is the namespaces as JSON; encoding/json sorts the keys of maps.
func index(servers []tool.Server) ([]byte, error) {
	all := make(map[string]entry, len(servers))
	for _, s := range servers {
		e := entry{Server: s.Name, Open: s.Err != "", Tools: make(map[string]string, len(s.Tools))}
		for _, t := range s.Tools {
			e.Tools[t.Function] = t.Name
		}
		all[s.Namespace] = e
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(all); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
