package auth_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"mcpx/api/auth"
	"mcpx/orchestrator/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask serves one request over a real connection of network and yields what the
// gate said.
func ask(t *testing.T, gate auth.Gate, network, address string, edit func(*http.Request)) (caller run.Caller, foreign, admit error) {
	t.Helper()
	l, err := net.Listen(network, address)
	require.NoError(t, err)
	s := &http.Server{ConnContext: auth.WithPeer, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		foreign = gate.Foreign(r)
		caller, admit = gate.Admit(r)
	})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
	}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/exec", nil)
	require.NoError(t, err)
	if edit != nil {
		edit(req)
	}
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	transport.CloseIdleConnections()
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-done, http.ErrServerClosed)
	return caller, foreign, admit
}

func TestUnixPeerOfOurUserSharesTheFileSystem(t *testing.T) {
	caller, foreign, err := ask(t, auth.Gate{}, "unix", filepath.Join(t.TempDir(), "s"), func(r *http.Request) {
		r.Header.Set("Traceparent", "00-1-2-01")
	})
	require.NoError(t, foreign)
	require.NoError(t, err)
	require.Equal(t, run.Caller{Principal: auth.PrincipalLocal, SharedFs: true, Trace: "00-1-2-01"}, caller)
}

func TestTCPNeedsTheToken(t *testing.T) {
	gate := auth.Gate{Token: auth.NewToken("s3cret")}
	for _, c := range []struct {
		header string
		ok     bool
	}{
		{"Bearer s3cret", true}, {"bearer s3cret", true}, {"Bearer  s3cret", true},
		{"", false}, {"Bearer", false}, {"Bearer ", false}, {"Bearer s3cre", false}, {"Bearer s3cret2", false},
		{"Basic s3cret", false}, {"s3cret", false}, {"Bearer S3CRET", false},
	} {
		t.Run(c.header, func(t *testing.T) {
			caller, _, err := ask(t, gate, "tcp", "127.0.0.1:0", func(r *http.Request) { r.Header.Set("Authorization", c.header) })
			if !c.ok {
				require.True(t, errdefs.IsUnauthorized(err), "%v", err)
				require.NotContains(t, err.Error(), "s3cre")
				return
			}
			require.NoError(t, err)
			require.Equal(t, run.Caller{Principal: auth.PrincipalToken}, caller)
		})
	}
}

func TestZeroTokenMatchesNothing(t *testing.T) {
	require.False(t, auth.Token{}.Matches(""))
	require.False(t, auth.NewToken("").Matches(""))
	_, _, err := ask(t, auth.Gate{}, "tcp", "127.0.0.1:0", nil)
	require.True(t, errdefs.IsUnauthorized(err))
}

func TestNoTokenIsLocalButSharesNothing(t *testing.T) {
	caller, _, err := ask(t, auth.Gate{NoToken: true}, "tcp", "127.0.0.1:0", nil)
	require.NoError(t, err)
	require.Equal(t, run.Caller{Principal: auth.PrincipalLocal}, caller)
}

func TestRequestThatSkippedTheServerIsAStranger(t *testing.T) {
	_, err := auth.Gate{Token: auth.NewToken("x")}.Admit(httptest.NewRequest(http.MethodGet, "/", nil))
	require.True(t, errdefs.IsUnauthorized(err))
}

func TestForeignHostAndOriginAreRefused(t *testing.T) {
	gate := auth.Gate{NoToken: true, Hosts: []string{"mcpx.example", "10.0.0.9"}, Origins: []string{"https://console.example/"}}
	for _, c := range []struct {
		name, host, origin string
		field              string // "" when let in
	}{
		{"localhost", "localhost:7770", "", ""},
		{"upper case, final dot", "LOCALHOST.", "", ""},
		{"loopback", "127.0.0.1:7770", "", ""},
		{"all of 127/8", "127.9.9.9", "", ""},
		{"v6 loopback", "[::1]:7770", "", ""},
		{"configured name", "mcpx.example:443", "", ""},
		{"configured address", "10.0.0.9", "", ""},
		{"rebound name", "evil.example:7770", "", "Host"},
		{"name that starts like ours", "localhost.evil.example", "", "Host"},
		{"name that looks like an address", "127.0.0.1.evil.example", "", "Host"},
		{"other address", "192.168.1.1", "", "Host"},
		{"own page", "localhost:7770", "http://localhost:7770", ""},
		{"listed page", "localhost:7770", "https://console.example", ""},
		{"other port", "localhost:7770", "http://localhost:3000", "Origin"},
		{"other site", "localhost:7770", "https://evil.example", "Origin"},
		{"sandboxed page", "localhost:7770", "null", "Origin"},
		{"page that starts like a listed one", "localhost:7770", "https://console.example.evil.example", "Origin"},
		{"garbage", "localhost:7770", "http://%zz", "Origin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err, _ := ask(t, gate, "tcp", "127.0.0.1:0", func(r *http.Request) {
				r.Host = c.host
				if c.origin != "" {
					r.Header.Set("Origin", c.origin)
				}
			})
			requireRefused(t, err, c.field)
		})
	}
}

func TestOneForeignOriginOfTwoIsEnough(t *testing.T) {
	_, err, _ := ask(t, auth.Gate{NoToken: true}, "tcp", "127.0.0.1:0", func(r *http.Request) {
		r.Header["Origin"] = []string{"http://localhost", "https://evil.example"}
	})
	requireRefused(t, err, "Origin")
}

func TestUnixSocketTakesAnyHostButNoForeignOrigin(t *testing.T) {
	for origin, field := range map[string]string{"": "", "http://whatever": "", "https://evil.example": "Origin"} {
		_, err, _ := ask(t, auth.Gate{}, "unix", filepath.Join(t.TempDir(), "s"), func(r *http.Request) {
			r.Host = "whatever"
			if origin != "" {
				r.Header.Set("Origin", origin)
			}
		})
		requireRefused(t, err, field)
	}
}

func requireRefused(t *testing.T, err error, field string) {
	t.Helper()
	if field == "" {
		require.NoError(t, err)
		return
	}
	var e *run.Error
	require.ErrorAs(t, err, &e)
	require.True(t, errdefs.IsPermissionDenied(err))
	require.Equal(t, field, e.Field)
}

type listener struct {
	net.Listener
	addr net.Addr
}

func (l listener) Addr() net.Addr { return l.addr }

func TestListenerWithoutProofIsRefused(t *testing.T) {
	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7770}
	everywhere := &net.TCPAddr{IP: net.IPv4zero, Port: 7770}
	token := auth.NewToken("x")
	for _, c := range []struct {
		name string
		gate auth.Gate
		addr net.Addr
		ok   bool
	}{
		{"unix", auth.Gate{}, &net.UnixAddr{Name: "/s", Net: "unix"}, true},
		{"token", auth.Gate{Token: token}, everywhere, true},
		{"nothing", auth.Gate{}, loopback, false},
		{"no-auth on loopback", auth.Gate{NoToken: true}, loopback, true},
		{"no-auth everywhere", auth.Gate{NoToken: true}, everywhere, false},
		{"no-auth on v6 everywhere", auth.Gate{NoToken: true}, &net.TCPAddr{IP: net.IPv6zero}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.gate.CheckListener(listener{addr: c.addr})
			require.Equal(t, c.ok, err == nil, "%v", err)
		})
	}
}

func TestTokenFile(t *testing.T) {
	for _, c := range []struct {
		name, content string
		mode          os.FileMode
		want          string // "" when refused
		warns         bool
	}{
		{"plain", "abc\n", 0o600, "abc", false},
		{"spaces, CRLF, more lines", "  abc \r\nsecond\n", 0o600, "abc", false},
		{"no newline", "abc", 0o400, "abc", false},
		{"readable by others", "abc\n", 0o644, "abc", true},
		{"readable by the group", "abc\n", 0o640, "abc", true},
		{"empty", "", 0o600, "", false},
		{"first line blank", " \nabc\n", 0o600, "", false},
		{"two words", "abc def\n", 0o600, "", false},
		{"not ASCII", "päss\n", 0o600, "", false},
		{"endless", strings.Repeat("x", 10_000), 0o600, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "token")
			require.NoError(t, os.WriteFile(path, []byte(c.content), 0o600))
			require.NoError(t, os.Chmod(path, c.mode))
			var log bytes.Buffer
			token, err := auth.LoadToken(path, slog.New(slog.NewTextHandler(&log, nil)))
			require.Equal(t, c.warns, log.Len() > 0, log.String())
			require.NotContains(t, log.String(), "abc")
			if c.want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.True(t, token.Matches(c.want))
			require.False(t, token.Matches(c.want+"x"))
		})
	}
	_, err := auth.LoadToken(filepath.Join(t.TempDir(), "absent"), slog.New(slog.NewTextHandler(io.Discard, nil)))
	require.ErrorIs(t, err, os.ErrNotExist)
}
