package policies

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"mcpx/images"
	"mcpx/orchestrator/run"
)

// Explanation is what would become of a request, and why. Nothing is run.
type Explanation struct {
	Principal   string   `json:"principal,omitempty"`
	Policy      string   `json:"policy"`
	Interpreter string   `json:"interpreter"`
	Runtime     string   `json:"runtime"`
	Image       string   `json:"image"`
	Argv        []string `json:"argv"`
	ScriptName  string   `json:"scriptName"`
	// Why names the rule of dispatch that chose the interpreter.
	Why string `json:"why"`
	// Settings are all values in effect.
	Settings []Reason `json:"settings"`
	// Env and DroppedEnv are names only.
	Env        []string  `json:"env"`
	DroppedEnv []string  `json:"droppedEnv"`
	Warnings   []run.Log `json:"warnings"`
	// Denied is why the run would be refused; nil when it would not.
	Denied *run.Error `json:"denied,omitempty"`
}

// Explain chooses an interpreter for a script and evaluates its rule. A script
// for which there is no interpreter is an error; a request that the rule
// refuses is explained.
func (d *Document) Explain(script images.Facts, ask Facts) (Explanation, error) {
	script.Permissions = ask.Permissions
	choice, err := images.Choose(script, d.Catalog())
	if err != nil {
		return Explanation{}, err
	}
	ask.Interpreter = choice.Interpreter.Name
	rule, _ := d.Rule(ask.Interpreter)
	e := Explanation{
		Principal: ask.Principal, Policy: d.Name + "/" + rule.Name, Interpreter: rule.Name, Runtime: rule.Kind, Image: rule.Image,
		Argv: choice.Argv, ScriptName: choice.ScriptName, Why: choice.Why, Settings: reasons(rule, ask),
		Env: []string{}, DroppedEnv: []string{}, Warnings: append([]run.Log{}, choice.Warnings...),
	}
	grant, err := d.Evaluate(ask)
	if denied, ok := errors.AsType[*run.Error](err); ok {
		e.Denied = denied
		return e, nil
	}
	e.Env = append(e.Env, slices.Sorted(maps.Keys(grant.Env))...)
	e.DroppedEnv = append(e.DroppedEnv, grant.DroppedEnv...)
	if len(grant.DroppedEnv) > 0 {
		e.Warnings = append(e.Warnings, run.Log{Level: "warn", Code: "env_dropped",
			Message: "the policy keeps these variables out: " + strings.Join(grant.DroppedEnv, ", ")})
	}
	return e, err
}
