package images_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/images"
)

var digest = "sha256:" + strings.Repeat("0af9", 16)

func TestParseRef(t *testing.T) {
	for text, want := range map[string]images.Ref{
		"mcpx/python3":                 {Name: "mcpx/python3"},
		"python":                       {Name: "python"},
		"python:3.11-slim":             {Name: "python", Tag: "3.11-slim"},
		"mcpx/python3@" + digest:       {Name: "mcpx/python3", Digest: digest},
		"mcpx/python3:1@" + digest:     {Name: "mcpx/python3", Tag: "1", Digest: digest},
		digest:                         {Digest: digest},
		"registry.example:5000/a/b__c": {Name: "registry.example:5000/a/b__c"},
		"localhost/x:y":                {Name: "localhost/x", Tag: "y"},
		"localhost:5000/x":             {Name: "localhost:5000/x"},
		"[::1]:5000/x":                 {Name: "[::1]:5000/x"},
	} {
		got, err := images.ParseRef(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		require.Equal(t, text, got.String())
		require.Equal(t, strings.Contains(text, "sha256:"), got.Pinned())
	}
}

func TestBadRefs(t *testing.T) {
	for _, text := range []string{
		"", ":", "@", "Upper/case", "a//b", "/a", "a/", "a b", "a:", "a:b:c", "a@sha256:12", "a@" + digest + "@" + digest,
		"-x", "a/-x", "a:" + strings.Repeat("t", 129), strings.Repeat("a", 256), "a\n", "bad_host.example:5000/x", "../x", "a@md5:1",
	} {
		_, err := images.ParseRef(text)
		require.Error(t, err, text)
	}
}

func FuzzParseRef(f *testing.F) {
	f.Add("registry.example:5000/a/b:c@" + digest)
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := images.ParseRef(text)
		if err == nil && ref.String() != text {
			t.Fatalf("%q became %q", text, ref.String())
		}
	})
}
