package artifacts_test

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"mcpx/artifacts"
)

func FuzzParseDigest(f *testing.F) {
	whole := strings.Repeat("0a", sha256.Size)
	for _, seed := range []string{whole, whole[1:], whole + "0", strings.ToUpper(whole), "", "../../etc/passwd", "sha256:" + whole, strings.Repeat("é", 32)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := artifacts.ParseDigest(text)
		raw, hexErr := hex.DecodeString(text)
		if hexErr == nil && len(raw) == sha256.Size && strings.ToLower(text) == text {
			require.NoError(t, err)
			require.Equal(t, text, string(d))
			return
		}
		require.True(t, errdefs.IsInvalidArgument(err), "%v", err)
		require.Empty(t, d)
		require.Less(t, len(err.Error()), 1000)
	})
}
