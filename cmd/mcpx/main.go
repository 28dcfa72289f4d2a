// Command mcpx runs scripts in containers. See package cli.
package main

import (
	"os"

	"mcpx/cmd/internal/cli"
)

func main() { os.Exit(cli.Main()) }
