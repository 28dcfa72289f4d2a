package policies

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units of sizes. "M" alone is not among them: some read it as 10⁶, some as 2²⁰.
var units = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"B", 1},
}

// ParseSize reads a size: "64MiB" is 64·2²⁰, "64MB" 64·10⁶, "65536" bytes.
func ParseSize(text string) (int64, error) {
	number, factor := text, int64(1)
	for _, unit := range units {
		if rest, ok := strings.CutSuffix(text, unit.name); ok {
			number, factor = strings.TrimRight(rest, " "), unit.bytes
			break
		}
	}
	if number == "" || strings.Trim(number, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not a size; write bytes, or a whole number with B, KiB, MiB, GiB, TiB, KB, MB, GB or TB", cut(text))
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is too large a size", cut(text))
	}
	return n * factor, nil
}

// FormatSize writes a size with the largest binary unit that leaves it whole.
func FormatSize(n int64) string {
	for _, unit := range []int{3, 2, 1, 0} {
		if u := units[unit]; n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// cut keeps a stranger's text in a message short.
func cut(text string) string {
	const most = 60
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
