package oci_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// TestMain leaves out what makes containers unless RUN_ENGINE asks for it. If
// it does, a runtime or a privilege that is missing is a failure.
func TestMain(m *testing.M) {
	if life, ok := os.LookupEnv(lifeEnv); ok {
		fmt.Fprintln(os.Stderr, live(lifeOf(life)))
		os.Exit(1)
	}
	flag.Parse()
	if !slices.Contains(strings.Split(os.Getenv("RUN_ENGINE"), ","), "oci") {
		fmt.Println("the tests that make containers are left out: RUN_ENGINE=oci runs them")
		if err := flag.Set("test.skip", "^(Test|Fuzz)OCI"); err != nil {
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
