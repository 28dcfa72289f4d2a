package docker_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestMain leaves out what needs a Docker daemon unless RUN_ENGINE asks for
// it. If it does, a daemon that is missing is a failure.
func TestMain(m *testing.M) {
	flag.Parse()
	if !slices.Contains(strings.Split(os.Getenv("RUN_ENGINE"), ","), "docker") {
		fmt.Println("the tests that need docker are left out: RUN_ENGINE=docker runs them")
		if err := flag.Set("test.skip", "^TestDocker"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
