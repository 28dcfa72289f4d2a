package auth

import (
	"bufio"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
)

// Token is a bearer token of which only the hash is kept. The zero Token
// matches nothing.
type Token struct {
	hash [sha256.Size]byte
	set  bool
}

// maxToken bounds the first line of a token file.
const maxToken = 4096

// NewToken keeps secret's hash.
func NewToken(secret string) Token {
	return Token{hash: sha256.Sum256([]byte(secret)), set: secret != ""}
}

// LoadToken reads the first line of the file at path. That others than the
// owner may read it is only warned of: secrets that an orchestrator mounts are
// often 0444.
func LoadToken(path string, log *slog.Logger) (Token, error) {
	f, err := os.Open(path)
	if err != nil {
		return Token{}, fmt.Errorf("token file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Token{}, fmt.Errorf("token file: %w", err)
	}
	if readable := info.Mode().Perm() & 0o077; readable != 0 {
		log.Warn("others can read the token file", "path", path, "mode", info.Mode().String())
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(make([]byte, 0, maxToken), maxToken)
	lines.Scan()
	if err := lines.Err(); err != nil {
		return Token{}, fmt.Errorf("token file %s: first line: %w", path, err)
	}
	secret := strings.TrimSpace(lines.Text())
	if err := checkSecret(secret); err != nil {
		return Token{}, fmt.Errorf("token file %s: %w", path, err)
	}
	return NewToken(secret), nil
}

// checkSecret refuses what could not be sent in a header.
func checkSecret(secret string) error {
	if secret == "" {
		return errors.New("the first line is empty")
	}
	for _, c := range []byte(secret) {
		if c <= ' ' || c > '~' {
			return errors.New("the token holds other characters than visible ASCII")
		}
	}
	return nil
}

// Matches compares in constant time. Both sides are hashed, so not even the
// length shows.
func (t Token) Matches(presented string) bool {
	hash := sha256.Sum256([]byte(presented))
	return subtle.ConstantTimeCompare(hash[:], t.hash[:]) == 1 && t.set
}

// bearer is the token that a request presents, "" for none (RFC 6750 2.1; in a
// query or a body it would end up in logs).
func bearer(r *http.Request) string {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(secret)
}
