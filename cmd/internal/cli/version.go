package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"mcpx/orchestrator/engine"
)

// versionDocument is what `mcpx version --json` prints.
type versionDocument struct {
	Version      string `json:"version"`
	Revision     string `json:"revision,omitempty"`
	Modified     bool   `json:"modified,omitempty"` // built from a changed tree
	Go           string `json:"go"`
	OS           string `json:"os"`
	Arch         string `json:"arch"`
	InitProtocol string `json:"initProtocol"`
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Tell the version",
		Args:  takes(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v := thisVersion()
			if asJSON {
				return a.document(v)
			}
			_, err := fmt.Fprintf(a.out, "mcpx %s, %s %s/%s, init protocol %s\n", v.Version, v.Go, v.OS, v.Arch, v.InitProtocol)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON document")
	return cmd
}

// thisVersion reads what the go command noted at build time.
func thisVersion() versionDocument {
	v := versionDocument{Version: "devel", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, InitProtocol: engine.InitProtocol}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if version := info.Main.Version; version != "" && version != "(devel)" {
		v.Version = version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}
