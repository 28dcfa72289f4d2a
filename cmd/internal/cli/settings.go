package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) settingsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "settings",
		Short: "List the settings, their values and where each came from",
		Long: `List the settings, their values and where each came from.

A setting is taken from the last of these that has it: the built-in default, the
configuration file (--config, MCPX_CONFIG, $XDG_CONFIG_HOME/mcpx/config.yaml or
/etc/mcpx/config.yaml), the environment (the key in capitals behind MCPX_, with _
for . and -; lists are separated by commas), the flag.`,
		Args: takes(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, settings, err := a.config()
			if err != nil {
				return err
			}
			if asJSON {
				return a.document(settings)
			}
			rows := [][]string{{"KEY", "VALUE", "SOURCE"}}
			for _, s := range settings {
				value := fmt.Sprint(s.Value)
				if list, ok := s.Value.([]string); ok {
					value = strings.Join(list, ",")
				}
				rows = append(rows, []string{s.Key, value, s.Source})
			}
			return a.table(rows)
		},
	}
	a.flags.bindServe(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON document")
	return cmd
}
