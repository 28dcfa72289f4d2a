package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/containerd/errdefs"
	"go.yaml.in/yaml/v3"

	"mcpx/orchestrator/run"
)

// readFile yields the settings of the configuration file, by key. Only a file
// that was not named may be missing.
func readFile(s Sources) (map[string]given, error) {
	path := s.File
	if path == "" {
		path = s.Process.env("MCPX_CONFIG")
	}
	named := path != ""
	if !named {
		path = defaultFile(s.Process)
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil, nil
	}
	if err != nil {
		return nil, badFile(path, 0, err.Error())
	}
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return nil, badFile(path, 0, err.Error())
	}
	found := map[string]given{}
	if len(document.Content) == 0 {
		return found, nil
	}
	return found, flatten(path, "", document.Content[0], found)
}

// flatten turns nested maps into dotted keys: `docker: {host: x}` and
// `docker.host: x` are the same.
func flatten(path, prefix string, node *yaml.Node, found map[string]given) error {
	if node.Kind != yaml.MappingNode {
		return badFile(path, node.Line, "a mapping of settings belongs here")
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		name, value := prefix+node.Content[i].Value, node.Content[i+1]
		if value.Kind == yaml.MappingNode {
			if err := flatten(path, name+".", value, found); err != nil {
				return err
			}
			continue
		}
		if err := take(path, name, node.Content[i].Line, value, found); err != nil {
			return err
		}
	}
	return nil
}

func take(path, name string, line int, value *yaml.Node, found map[string]given) error {
	if !isKey(name) {
		return badFile(path, line, fmt.Sprintf("%q is no setting; `mcpx settings` lists them", name))
	}
	if _, twice := found[name]; twice {
		return badFile(path, line, fmt.Sprintf("%q stands twice", name))
	}
	values, err := scalars(value)
	if err != nil {
		return badFile(path, value.Line, fmt.Sprintf("%s: %v", name, err))
	}
	found[name] = given{values, fmt.Sprintf("file %s:%d", path, line)}
	return nil
}

// scalars are a node's values as text; null in a list is an empty one.
func scalars(node *yaml.Node) ([]string, error) {
	switch {
	case node.Kind == yaml.ScalarNode && node.Tag == "!!null":
		return nil, errors.New("has no value")
	case node.Kind == yaml.ScalarNode:
		return []string{node.Value}, nil
	case node.Kind != yaml.SequenceNode:
		return nil, errors.New("is neither a value nor a list")
	}
	values := []string{}
	for _, item := range node.Content {
		switch {
		case item.Kind != yaml.ScalarNode:
			return nil, errors.New("its list holds something else than values")
		case item.Tag == "!!null":
			values = append(values, "")
		default:
			values = append(values, item.Value)
		}
	}
	return values, nil
}

func isKey(name string) bool {
	for _, k := range Keys() {
		if k.Name == name {
			return true
		}
	}
	return false
}

func badFile(path string, line int, message string) error {
	place := path
	if line > 0 {
		place = fmt.Sprintf("%s:%d", path, line)
	}
	return &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: place, Message: message,
		Hint: "mend the file, or name another one with --config"}
}
