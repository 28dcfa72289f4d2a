package tool

import (
	"cmp"
	"slices"
	"strings"
)

// maxSuggested is how many names an error suggests.
const maxSuggested = 3

// Nearest finds the names that somebody may have meant by wanted, the likeliest
// first; none when nothing is near.
func Nearest(wanted string, names []string) []string {
	type candidate struct {
		name string
		far  int
	}
	plain := plainName(wanted)
	var near []candidate
	for _, name := range names {
		other := plainName(name)
		far := distance(plain, other)
		if other != "" && plain != "" && (strings.Contains(other, plain) || strings.Contains(plain, other)) {
			far = min(far, 1+abs(len(other)-len(plain))/4)
		}
		if far <= max(2, len(plain)/3) {
			near = append(near, candidate{name, far})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(a.name, b.name))
	})
	var out []string
	for _, c := range near[:min(len(near), maxSuggested)] {
		out = append(out, c.name)
	}
	return out
}

// maxCompared bounds the work that a long name makes.
const maxCompared = 128

// plainName drops what names of one thing differ in.
func plainName(name string) string {
	name = name[:min(len(name), maxCompared)]
	return strings.NewReplacer("-", "", "_", "", ".", "", " ", "", "/", "").Replace(strings.ToLower(name))
}

// distance counts the changes from a to b: bytes put in, left out, replaced.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			above := row[j+1]
			cost := left
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, above+1, row[j]+1)
			left = above
		}
	}
	return row[len(b)]
}

func abs(n int) int { return max(n, -n) }
