package job

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
)

// alphabet is base32 without look-alikes, in the order of its values, so that
// ids sort by time. https://www.crockford.com/base32.html
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

const idPrefix = "run-"

// idDigits encode 16 bytes.
const idDigits = 26

// newID is "run-", 48 bits of milliseconds and 80 random bits. Ids of one
// process sort in the order in which they were made: one that comes within a
// millisecond of another is dated a little later.
func (m *Manager) newID() string {
	m.mu.Lock()
	m.lastID = max(time.Now().UnixMilli(), m.lastID+1)
	millis := m.lastID
	m.mu.Unlock()
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(millis)<<16)
	rand.Read(raw[6:]) // it never fails: crypto/rand ends the program instead
	return idPrefix + base32.NewEncoding(alphabet).WithPadding(base32.NoPadding).EncodeToString(raw[:])
}

// validID keeps what cannot be an id away from paths.
func validID(id string) bool {
	digits, ok := strings.CutPrefix(id, idPrefix)
	return ok && len(digits) == idDigits && strings.Trim(digits, alphabet) == ""
}
