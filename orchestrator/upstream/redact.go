package upstream

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// redacted stands for a secret.
const redacted = "[redacted]"

// redactor keeps the values of a server's variables and headers out of texts.
type redactor struct {
	secrets []string // longest first
}

// Values shorter than these are not looked for: "1" and "true" are no secrets,
// and a text without them could not be read.
const (
	minSecret      = 6
	minNamedSecret = 3 // where the name says that it is one
)

func newRedactor(s Server) redactor {
	var found []string
	add := func(value string, least int) {
		if len(value) >= least {
			found = append(found, value)
		}
	}
	for name, value := range s.Env {
		if !harmless(name) {
			add(value, leastFor(name))
		}
	}
	for name, value := range s.Headers {
		add(value, leastFor(name))
		if _, credential, ok := strings.Cut(value, " "); ok { // Bearer x
			add(credential, minNamedSecret)
		}
	}
	for _, value := range s.expanded {
		add(value, minSecret)
	}
	if u, err := url.Parse(s.URL); err == nil {
		if password, ok := u.User.Password(); ok {
			add(password, minNamedSecret)
		}
		for name, values := range u.Query() {
			for _, value := range values {
				add(value, leastFor(name))
			}
		}
	}
	return redactor{forms(found)}
}

func leastFor(name string) int {
	name = strings.ToUpper(name)
	for _, word := range []string{"KEY", "TOKEN", "SECRET", "PASS", "PWD", "AUTH", "CRED", "COOKIE", "PIN"} {
		if strings.Contains(name, word) {
			return minNamedSecret
		}
	}
	return minSecret
}

// forms adds the ways in which a value is spelled inside JSON and addresses.
func forms(values []string) []string {
	var out []string
	for _, value := range values {
		out = append(out, value, url.QueryEscape(value), url.PathEscape(value))
		if quoted, err := json.Marshal(value); err == nil {
			out = append(out, string(quoted[1:len(quoted)-1]))
		}
	}
	slices.SortFunc(out, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(out)
}

func (r redactor) text(in string) string {
	return collapse(r.blank(in))
}

// longest is how much of a secret the end of a cut text may show.
func (r redactor) longest() int {
	if len(r.secrets) == 0 {
		return 0
	}
	return len(r.secrets[0])
}

// blank overwrites secrets without changing a position.
func (r redactor) blank(in string) string {
	in = strings.ReplaceAll(in, "\x00", " ")
	for _, secret := range r.secrets {
		in = strings.ReplaceAll(in, secret, strings.Repeat("\x00", len(secret)))
	}
	return in
}

func collapse(in string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(in, "\x00")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(redacted)
		in = strings.TrimLeft(rest, "\x00")
	}
}
