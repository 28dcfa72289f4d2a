// Package auth decides whether a request may come in, and as whom: bearer
// tokens on TCP, the kernel's word on unix sockets, and the checks that keep
// web pages of other sites out (Host, Origin).
package auth

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Principals, as they stand in run.Caller.
const (
	PrincipalLocal = "local" // by a unix socket, or without a token on loopback
	PrincipalToken = "token"
)

// Gate lets requests in. The zero Gate lets in unix sockets only.
type Gate struct {
	// Token is what TCP connections must present.
	Token Token
	// NoToken lets TCP connections in without one; loopback only.
	NoToken bool
	// Hosts are names that a Host header may carry beside loopback names and
	// the address that was dialled.
	Hosts []string
	// Origins are web origins ("https://console.example") that may call.
	Origins []string
}

// CheckListener refuses a listener whose requests nobody would have to prove
// anything for, before it takes one.
func (g Gate) CheckListener(l net.Listener) error {
	addr, ok := l.Addr().(*net.TCPAddr)
	switch {
	case !ok, g.Token.set:
		return nil
	case !g.NoToken:
		return &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument,
			Message: fmt.Sprintf("listening on %s needs a token", addr), Hint: "give --token-file, or --no-auth on a loopback address"}
	case !addr.IP.IsLoopback():
		return &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument,
			Message: fmt.Sprintf("--no-auth is refused on %s: everyone who reaches it could run programs", addr),
			Hint:    "give --token-file, or listen on 127.0.0.1"}
	}
	return nil
}

// Foreign refuses requests that a web page of another site made a browser
// send: a rebound DNS name shows in Host, another site in Origin.
func (g Gate) Foreign(r *http.Request) error {
	peer := peerFrom(r.Context())
	if !peer.Unix && !g.hostAllowed(r.Host, peer.Local) {
		return &run.Error{Code: run.CodeForbidden, Class: errdefs.ErrPermissionDenied, Field: "Host",
			Message: fmt.Sprintf("the name %q is not ours", r.Host), Hint: "use the daemon's address, or add the name to its configured hosts"}
	}
	for _, origin := range r.Header.Values("Origin") {
		if !g.originAllowed(origin, r.Host) {
			return &run.Error{Code: run.CodeForbidden, Class: errdefs.ErrPermissionDenied, Field: "Origin",
				Message: fmt.Sprintf("web pages of %q may not call", origin), Hint: "add it to the daemon's configured origins"}
		}
	}
	return nil
}

// Admit says who asks, or refuses with errdefs.ErrUnauthenticated.
func (g Gate) Admit(r *http.Request) (run.Caller, error) {
	peer := peerFrom(r.Context())
	caller := run.Caller{Principal: PrincipalLocal, SharedFs: peer.SameUser, Trace: r.Header.Get("Traceparent")}
	if peer.Unix {
		return caller, nil
	}
	secret := bearer(r)
	switch {
	case g.Token.Matches(secret):
		caller.Principal = PrincipalToken
		return caller, nil
	case !g.Token.set && g.NoToken:
		return caller, nil
	case secret == "":
		return run.Caller{}, unauthorized("a bearer token is needed")
	}
	return run.Caller{}, unauthorized("the bearer token is wrong")
}

func unauthorized(message string) error {
	return &run.Error{Code: run.CodeUnauthorized, Class: errdefs.ErrUnauthenticated, Field: "Authorization",
		Message: message, Hint: "send the header `Authorization: Bearer TOKEN`"}
}

// hostAllowed looks at the name only: a page can be served from any port of a
// rebound name, but never from an address it does not own.
func (g Gate) hostAllowed(hostport string, local net.IP) bool {
	host := hostOf(hostport)
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback() || ip.Equal(local) || g.hostListed(host)
	}
	return host == "localhost" || host != "" && g.hostListed(host)
}

func (g Gate) hostListed(host string) bool {
	return slices.ContainsFunc(g.Hosts, func(h string) bool { return hostOf(h) == host })
}

// originAllowed: the same host and port as the request, or listed. "null" is
// what sandboxed pages send; it is nobody's.
func (g Gate) originAllowed(origin, host string) bool {
	if slices.ContainsFunc(g.Origins, func(o string) bool { return strings.EqualFold(strings.TrimSuffix(o, "/"), origin) }) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// hostOf is the name or address in "name:port", "name", "[::1]:port" or "[::1]".
func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
