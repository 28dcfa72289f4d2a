package policies_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/policies"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "65536": 65536, "1B": 1, "64KiB": 64 << 10, "64MiB": 64 << 20, "2GiB": 2 << 30, "1TiB": 1 << 40,
		"1KB": 1000, "512MB": 512e6, "3GB": 3e9, "1TB": 1e12, "64 MiB": 64 << 20, "9223372036854775807": 9223372036854775807,
	} {
		got, err := policies.ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "MiB", "64M", "64mib", "-1", "+1", "1.5GiB", "1e3", "0x10", " 1", "1 ", "9223372036854775808", "9007199254740993TiB", "١MiB", "1MiBMiB"} {
		_, err := policies.ParseSize(text)
		require.Error(t, err, text)
	}
}

func FuzzParseSize(f *testing.F) {
	f.Add("64MiB")
	f.Add("9999999TB")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := policies.ParseSize(text)
		if err != nil {
			return
		}
		if back, err := policies.ParseSize(policies.FormatSize(n)); n < 0 || err != nil || back != n {
			t.Fatalf("%q: %d, again %d, %v", text, n, back, err)
		}
	})
}
