package job

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"time"
)

// crockford is base32 without look-alikes, in the order of its values, so that
// ids sort by time. https://www.crockford.com/base32.html
var crockford = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// idLength is that of "run-" and 16 bytes in base32.
const idLength = 4 + 26

// newID is "run-", 48 bits of milliseconds and 80 random bits.
func newID() string {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:8], uint64(time.Now().UnixMilli())<<16)
	rand.Read(raw[6:]) // it never fails: crypto/rand ends the program instead
	return "run-" + crockford.EncodeToString(raw[:])
}

// validID keeps what cannot be an id away from paths and queries.
func validID(id string) bool {
	if len(id) != idLength || id[:4] != "run-" {
		return false
	}
	_, err := crockford.DecodeString(id[4:])
	return err == nil
}
