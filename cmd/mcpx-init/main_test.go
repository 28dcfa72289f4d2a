package main_test

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/orchestrator/supervisor/inittest"
)

func TestCommandLine(t *testing.T) {
	path := inittest.Build(t)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"version":           {[]string{"version"}, 0, ", protocol 1\n"},
		"version, more":     {[]string{"version", "x"}, 2, "usage:"},
		"for scripts":       {[]string{"call", "-h"}, 0, "usage: mcpx-init call"},
		"for scripts, none": {[]string{"call", "a", "b"}, 2, "mcpx: dial unix"},
		"unknown":           {[]string{"run"}, 2, "usage:"},
		"host, too few":     {[]string{"host", "s"}, 2, "usage:"},
		"not in a box":      {nil, 1, "not the first process"},
		"host, no socket":   {[]string{"host", "/nope/s", ""}, 1, "/nope/s"},
		"host, no endpoint": {[]string{"host", "/nope/s", "", "256.0.0.1:1"}, 1, "/nope/s"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.Command(path, c.args...).CombinedOutput()
			code := 0
			if exit := new(exec.ExitError); errors.As(err, &exit) {
				code = exit.ExitCode()
			}
			require.Equal(t, c.code, code)
			require.Contains(t, string(out), c.says)
		})
	}
}
