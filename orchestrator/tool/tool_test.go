package tool_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/tool"
)

func TestUnwrapFindsTheValue(t *testing.T) {
	for name, c := range map[string]struct{ raw, want string }{
		"structured":            {`{"content":[{"type":"text","text":"x"}],"structuredContent":{"id":9007199254740993}}`, `{"id":9007199254740993}`},
		"structured null":       {`{"content":[{"type":"text","text":"x"}],"structuredContent":null}`, `"x"`},
		"object in text":        {`{"content":[{"type":"text","text":" {\"a\":1}\n"}]}`, `{"a":1}`},
		"list in text":          {`{"content":[{"type":"text","text":"[1,2]"}]}`, `[1,2]`},
		"number stays text":     {`{"content":[{"type":"text","text":"42"}]}`, `"42"`},
		"text":                  {`{"content":[{"type":"text","text":"a <b> & c"}]}`, `"a <b> & c"`},
		"broken JSON is text":   {`{"content":[{"type":"text","text":"{oops"}]}`, `"{oops"`},
		"two texts":             {`{"content":[{"type":"text","text":"{}"},{"type":"text","text":"b"}]}`, `"{}\nb"`},
		"image":                 {`{"content":[{"type":"image","data":"AA==","mimeType":"image/png"}]}`, `[{"type":"image","data":"AA==","mimeType":"image/png"}]`},
		"text beside an image":  {`{"content":[{"type":"text","text":"look"},{"type":"image","data":""}]}`, `[{"type":"text","text":"look"},{"type":"image","data":""}]`},
		"nothing":               {`{"content":[]}`, `null`},
		"empty object":          {`{}`, `null`},
		"empty text":            {`{"content":[{"type":"text","text":""}]}`, `""`},
		"text block of no text": {`{"content":[{"type":"text"}]}`, `[{"type":"text"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := tool.Unwrap(json.RawMessage(c.raw))
			require.NoError(t, err)
			require.Equal(t, c.want, string(got))
		})
	}
	for _, raw := range []string{"", "[]", "null", `"x"`, "{", `{"content":7}`} {
		_, err := tool.Unwrap(json.RawMessage(raw))
		require.Error(t, err, raw)
	}
}

func TestTextIsForPeople(t *testing.T) {
	require.Equal(t, "a\nb", tool.Text(json.RawMessage(`{"content":[{"type":"text","text":"a"},{"type":"image"},{"type":"text","text":"b"}]}`)))
	require.Empty(t, tool.Text(json.RawMessage(`[]`)))
}

func FuzzUnwrap(f *testing.F) {
	f.Add([]byte(`{"content":[{"type":"text","text":"[1]"}]}`))
	f.Add([]byte(`{"structuredContent":{"a":"\u2028"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got, err := tool.Unwrap(raw); err == nil {
			require.True(t, json.Valid(got), "%q", got)
		}
	})
}

func servers() []tool.Server {
	return []tool.Server{
		{Name: "git", Namespace: "git", Tools: []tool.Tool{
			{Server: "git", Namespace: "git", Name: "commit", Function: "commit", Description: "record changes in a file's history"},
			{Server: "git", Namespace: "git", Name: "log", Function: "log", Description: "show commits"},
		}},
		{Name: "my-files", Namespace: "my_files", Tools: []tool.Tool{
			{Server: "my-files", Namespace: "my_files", Name: "read_file", Function: "read_file", Title: "Reader", Description: "read what is there"},
			{Server: "my-files", Namespace: "my_files", Name: "file", Function: "file", Description: "tell its kind"},
			{Server: "my-files", Namespace: "my_files", Name: "file-list", Function: "file_list", Description: "list"},
		}},
	}
}

func TestSearchRanksNamesOverDescriptions(t *testing.T) {
	for query, want := range map[string][]string{
		"file":                {"file", "file-list", "read_file", "commit"},
		"FILE list":           {"file-list"},
		"read history":        {"read_file", "commit"},
		"git.log":             {"log"},
		"my_files.file_list":  {"file-list"},
		"reader":              {"read_file"},
		"nothing-of-the-kind": nil,
		"":                    {"commit", "log", "read_file", "file", "file-list"},
	} {
		t.Run(query, func(t *testing.T) {
			var names []string
			for _, hit := range tool.Search(servers(), query, 0) {
				names = append(names, hit.Tool.Name)
			}
			require.Equal(t, want, names)
		})
	}
	require.Len(t, tool.Search(servers(), "", 2), 2)
}

func TestNearestSuggestsWhatWasMeant(t *testing.T) {
	names := []string{"take_screenshot", "take_snapshot", "click", "navigate_page"}
	for wanted, want := range map[string][]string{
		"takeScreenshot": {"take_screenshot"},
		"screenshot":     {"take_screenshot"},
		"clik":           {"click"},
		"navigate":       {"navigate_page"},
		"zebra":          nil,
	} {
		require.Equal(t, want, tool.Nearest(wanted, names), wanted)
	}
}

func TestArgumentsAreExplained(t *testing.T) {
	for name, c := range map[string]struct{ schema, arguments, field, says, example string }{
		"missing":     {`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, `{}`, "arguments.a", "arguments.a: is required and missing", `{"a":"text"}`},
		"nested type": {`{"type":"object","properties":{"f":{"type":"object","properties":{"n":{"type":"array","items":{"type":"integer"}}}}}}`, `{"f":{"n":[1,"x"]}}`, "arguments.f.n[1]", "wanted an integer, got a string", `{}`},
		"enum":        {`{"type":"object","properties":{"m":{"enum":["r","w"]}},"required":["m"]}`, `{"m":"x"}`, "arguments.m", `wanted one of "r", "w"`, `{"m":"r"}`},
		"const":       {`{"properties":{"m":{"const":1}},"required":["m"]}`, `{"m":2}`, "arguments.m", "wanted 1", `{"m":1}`},
		"nullable":    {`{"properties":{"m":{"type":["string","null"]}},"required":["m"]}`, `{"m":2}`, "arguments.m", "wanted a string or null, got a number", `{"m":"text"}`},
		"any of types": {`{"properties":{"m":{"anyOf":[{"type":"string"},{"type":"null"}]}},"required":["m"]}`, `{"m":2}`, "arguments.m",
			"wanted a string or null", `{"m":"text"}`},
		"one of forms": {`{"properties":{"m":{"oneOf":[{"type":"object","required":["a"]},{"type":"object","required":["b"]}]}},"required":["m"]}`, `{"m":{}}`,
			"arguments.m", "fits none of its 2 forms (the first: arguments.m.a: is required and missing)", ""},
		"range":    {`{"properties":{"n":{"type":"integer","minimum":3,"maximum":5}},"required":["n"]}`, `{"n":9}`, "arguments.n", "a number of at most 5", `{"n":3}`},
		"length":   {`{"properties":{"s":{"type":"string","minLength":6}},"required":["s"]}`, `{"s":"a"}`, "arguments.s", "at least 6 characters, got 1", `{"s":"textxx"}`},
		"pattern":  {`{"properties":{"s":{"type":"string","pattern":"^[A-Z]+$"}},"required":["s"]}`, `{"s":"a"}`, "arguments.s", "matches ^[A-Z]+$", ""},
		"ref":      {`{"$defs":{"p":{"type":"object","properties":{"x":{"type":"number"}},"required":["x"]}},"properties":{"p":{"$ref":"#/$defs/p"}},"required":["p"]}`, `{"p":{"x":"1"}}`, "arguments.p.x", "wanted a number, got a string", `{"p":{"x":1}}`},
		"cycle":    {`{"$defs":{"n":{"type":"object","properties":{"next":{"$ref":"#/$defs/n"}},"required":["next"]}},"$ref":"#/$defs/n"}`, `{}`, "arguments.next", "is required", ""},
		"draft-07": {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"type":"array","items":[{"type":"string"}]}}}`, `{"a":[1]}`, "arguments.a[0]", "wanted a string", `{}`},
		"many":     {`{"required":["a","b","c","d","e"]}`, `{}`, "arguments.a", "and 2 more", ""},
	} {
		t.Run(name, func(t *testing.T) {
			checker, err := tool.CompileArguments(json.RawMessage(c.schema))
			require.NoError(t, err)
			err = checker.Check(json.RawMessage(c.arguments))
			var m *tool.Mismatch
			require.ErrorAs(t, err, &m)
			require.Equal(t, c.field, m.Field)
			require.Contains(t, m.Message, c.says)
			if c.example != "" {
				require.Equal(t, c.example, string(checker.Example()))
				require.NoError(t, checker.Check(checker.Example()))
			}
		})
	}
}

func TestGoodArgumentsPass(t *testing.T) {
	for schema, arguments := range map[string]string{
		``:                  `{"anything":[1]}`,
		`{"type":"object"}`: `{}`,
		`true`:              `{}`,
		`{"properties":{"id":{"type":"integer"}}}`: `{"id":9007199254740993}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"mail":{"type":"string","format":"email"}}}`: `{"mail":"root"}`,
	} {
		checker, err := tool.CompileArguments(json.RawMessage(schema))
		require.NoError(t, err, schema)
		require.NoError(t, checker.Check(json.RawMessage(arguments)), schema)
	}
}

func TestSchemasThatCanNotBeCheckedHereAreSaid(t *testing.T) {
	for _, schema := range []string{
		`{`, `{"type":7}`,
		`{"properties":{"s":{"pattern":"(?=x)"}}}`,
		`{"$ref":"file:///etc/passwd"}`,
		`{"$ref":"http://127.0.0.1/schema"}`,
		`{"$ref":"#/$defs/none"}`,
	} {
		_, err := tool.CompileArguments(json.RawMessage(schema))
		require.Error(t, err, schema)
	}
}

func FuzzCheckArguments(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}`, `{"a":1}`)
	f.Add(`{"anyOf":[{"$ref":"#"},{"type":"null"}],"items":[{}]}`, `{}`)
	f.Add(`{"oneOf":[{"required":["a"]},{"format":"email"}]}`, `{"b":[{}]}`)
	f.Fuzz(func(t *testing.T, schema, arguments string) {
		checker, err := tool.CompileArguments(json.RawMessage(schema))
		if err != nil {
			return
		}
		if err := checker.Check(json.RawMessage(arguments)); err != nil {
			require.NotEmpty(t, err.Error())
		}
		if example := checker.Example(); example != nil {
			require.NoError(t, checker.Check(example))
		}
	})
}
