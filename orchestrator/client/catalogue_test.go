package client_test

import (
	"encoding/json"
	"fmt"

	"mcpx/orchestrator/tool"
)

// awkward are schemas that generators get wrong.
var awkward = []struct{ name, schema string }{
	{"empty", `{}`},
	{"true", `true`},
	{"false", `false`},
	{"none", ``},
	{"broken", `{"type":`},
	{"enum", `{"type":"object","properties":{"a":{"enum":["x","y\"z",1,-2.5,true,null,"x"]}},"required":["a"]}`},
	{"const", `{"properties":{"kind":{"const":"circle"},"n":{"const":null},"o":{"const":{"a":1}}}}`},
	{"nullable", `{"properties":{"a":{"type":["string","null"]},"b":{"type":"integer","nullable":true},"c":{"anyOf":[{"type":"number"},{"type":"null"}]}}}`},
	{"one_of", `{"oneOf":[{"type":"object","properties":{"id":{"type":"string"}},"required":["id"]},{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}]}`},
	{"one_of_beside", `{"type":"object","properties":{"x":{"type":"string"}},"anyOf":[{"required":["x"]},{"properties":{"y":{"type":"number"}}}]}`},
	{"all_of", `{"allOf":[{"$ref":"#/$defs/A"},{"properties":{"b":{"type":"array","items":{"type":["string","number"]}}}}],"$defs":{"A":{"type":"object","properties":{"a":{"type":"boolean"}}}}}`},
	{"tree", `{"type":"object","properties":{"root":{"$ref":"#/$defs/Node"}},"required":["root"],"$defs":{"Node":{"type":"object","properties":{"value":{},"children":{"type":"array","items":{"$ref":"#/$defs/Node"}}}}}}`},
	{"self", `{"type":"object","properties":{"next":{"$ref":"#"}}}`},
	{"circle", `{"properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"anyOf":[{"$ref":"#/$defs/B"},{"type":"string"}]},"B":{"oneOf":[{"$ref":"#/$defs/A"},{"$ref":"#/$defs/C"}]},"C":{"$ref":"#/$defs/C"}}}`},
	{"definitions", `{"properties":{"a":{"$ref":"#/definitions/foo~1bar%20baz"},"b":{"$ref":"#/definitions/missing"},"c":{"$ref":"other.json#/x"},"d":{"$ref":"#here"}},"definitions":{"foo/bar baz":{"type":"string"},"z":{"$anchor":"here","type":"boolean"}}}`},
	{"same_names", `{"properties":{"a":{"$ref":"#/$defs/x/y"},"b":{"$ref":"#/definitions/y"},"c":{"$ref":"#/$defs/a-b"},"d":{"$ref":"#/$defs/ab"}},"$defs":{"x":{"y":{"type":"string"}},"a-b":{"type":"number"},"ab":{"type":"boolean"}},"definitions":{"y":{"type":"null"}}}`},
	{"tuple", `{"properties":{"new":{"type":"array","prefixItems":[{"type":"number"},{"type":["string","null"]}],"minItems":1,"items":false},"old":{"type":"array","items":[{"type":"number"},{"type":"string"}],"minItems":2,"additionalItems":{"type":"boolean"}},"open":{"prefixItems":[{"type":"string"}]}}}`},
	{"maps", `{"properties":{"a":{"type":"object","additionalProperties":{"type":"number"}},"b":{"type":"object","additionalProperties":false},"c":{"type":"object","properties":{"x":{"type":"string"}},"additionalProperties":true},"d":{"type":"object","patternProperties":{"^x-":{"type":"string"}}},"e":{"type":"object"}}}`},
	{"odd_names", `{"properties":{"class":{"type":"string"},"delete":{"type":"string"},"__proto__":{"type":"string"},"constructor":{"type":"string"},"1x":{"type":"string"},"a-b":{"type":"string"},"a_b":{"type":"string"},"":{"type":"string"},"q\"\n\u2028":{"type":"string"},"self":{"type":"string"},"ключ":{"type":"string"}},"required":["a-b","undeclared"]}`},
	{"literals", `{"properties":{"a":{"enum":[1e400,1.0,-0,12345678901234567890]},"b":{"enum":[[1],{"x":2}]}}}`},
	{"doc", `{"properties":{"a":{"type":"string","description":"ends */ here\n/** and again ` + "`${x}`" + ` \u2028 next \u202e turned *\u0000/","default":"*/"},"b":{"type":"number","title":"B","default":3}}}`},
	{"wrong_kinds", `{"type":7,"properties":[],"required":"x","enum":{},"anyOf":[1,"a",null],"items":4,"$ref":[],"description":{}}`},
	{"wrong_kinds_below", `{"type":["object","string",1],"properties":{"a":3,"b":null,"c":[]},"required":[1,"c",null]}`},
}

// hostile is a server that says nothing kind.
func hostile() tool.Server {
	s := tool.Server{Name: "evil */ \n\"", Namespace: "evil", Description: "a */ b\u2028c \"\"\" \\"}
	for i, a := range awkward {
		t := tool.Tool{Server: s.Name, Name: a.name + " '\"`${}\n", Namespace: "evil", Function: "f_" + a.name, InputSchema: json.RawMessage(a.schema)}
		if i%2 == 0 {
			t.OutputSchema = t.InputSchema
			t.Description = "*/ export const bad = 1; /* \"\"\" \\\" " + a.name + "\r\nsecond\u2029third \\"
		}
		s.Tools = append(s.Tools, t)
	}
	for _, name := range []string{"clash", "clash_out", "clash_A"} {
		s.Tools = append(s.Tools, tool.Tool{Server: s.Name, Name: name, Namespace: "evil", Function: name,
			InputSchema:  json.RawMessage(`{"properties":{"a":{"$ref":"#/$defs/A"},"b":{"$ref":"#/$defs/out_A"}},"$defs":{"A":{"type":"string"},"out_A":{"type":"number"}}}`),
			OutputSchema: json.RawMessage(`{"properties":{"a":{"$ref":"#/$defs/A"}},"$defs":{"A":{"type":"boolean"}}}`)})
	}
	for _, name := range []string{"class_", "delete_", "constructor_", "__proto___", "_1x", "a_b", "a_b_123456"} {
		s.Tools = append(s.Tools, tool.Tool{Server: s.Name, Name: name + "!", Namespace: "evil", Function: name})
	}
	return s
}

// large is n servers with m tools each.
func large(n, m int) []tool.Server {
	all := make([]tool.Server, n)
	for i := range all {
		all[i] = tool.Server{Name: fmt.Sprintf("server-%02d", i), Namespace: fmt.Sprintf("server_%02d", i), Description: "A server among others."}
		for j := range m {
			all[i].Tools = append(all[i].Tools, tool.Tool{Server: all[i].Name, Name: fmt.Sprintf("tool-%02d", j), Namespace: all[i].Namespace,
				Function: fmt.Sprintf("tool_%02d", j), Description: "Does something that takes a line or two to describe, as most tools do.",
				InputSchema: json.RawMessage(`{"type":"object","properties":{"url":{"type":"string","description":"Where to."},"format":{"enum":["png","jpeg","webp"]},"size":{"type":"object","properties":{"width":{"type":"integer"},"height":{"type":"integer"}}},"tags":{"type":"array","items":{"type":"string"}}},"required":["url"]}`)})
		}
	}
	return all
}
