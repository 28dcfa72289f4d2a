package tool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// envelope is what is read of a CallToolResult.
type envelope struct {
	Structured json.RawMessage   `json:"structuredContent"`
	Content    []json.RawMessage `json:"content"`
}

// Unwrap finds the value that a script wants in a CallToolResult:
//
//   - structuredContent when there is any;
//   - else, when all blocks are text: the object or array that the only block
//     holds as JSON, or the blocks' text joined by newlines. A text such as
//     "42" or "true" stays text: else the type would depend on the data;
//   - else (images, audio, resources among the blocks) the blocks themselves,
//     so that nothing is lost;
//   - null when there is no block at all.
func Unwrap(raw json.RawMessage) (json.RawMessage, error) {
	e, err := parse(raw)
	if err != nil {
		return nil, err
	}
	if len(e.Structured) > 0 && string(e.Structured) != "null" {
		return e.Structured, nil
	}
	if len(e.Content) == 0 {
		return json.RawMessage("null"), nil
	}
	texts, only := texts(e.Content)
	if !only {
		return json.Marshal(e.Content)
	}
	if len(texts) == 1 && compound(texts[0]) {
		return json.RawMessage(strings.TrimSpace(texts[0])), nil
	}
	return quote(strings.Join(texts, "\n"))
}

// Text joins the text blocks of a CallToolResult, for people and for the
// message of a ToolError. It is empty when there are none.
func Text(raw json.RawMessage) string {
	e, err := parse(raw)
	if err != nil {
		return ""
	}
	found, _ := texts(e.Content)
	return strings.Join(found, "\n")
}

func parse(raw json.RawMessage) (envelope, error) {
	var e envelope
	if trimmed := bytes.TrimSpace(raw); len(trimmed) == 0 || trimmed[0] != '{' {
		return e, fmt.Errorf("read tool result: not a JSON object")
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return e, fmt.Errorf("read tool result: %w", err)
	}
	return e, nil
}

// texts also tells whether there was nothing but text.
func texts(blocks []json.RawMessage) (found []string, only bool) {
	only = true
	for _, raw := range blocks {
		var block struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		}
		if json.Unmarshal(raw, &block) != nil || block.Type != "text" || block.Text == nil {
			only = false
			continue
		}
		found = append(found, *block.Text)
	}
	return found, only
}

func compound(text string) bool {
	text = strings.TrimSpace(text)
	return text != "" && (text[0] == '{' || text[0] == '[') && json.Valid([]byte(text))
}

// quote is json.Marshal without escaping <, > and &, which would only make
// results harder to read.
func quote(text string) (json.RawMessage, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return nil, fmt.Errorf("encode tool text: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
