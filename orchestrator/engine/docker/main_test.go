package docker_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
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
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
