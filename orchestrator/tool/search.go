package tool

import (
	"cmp"
	"slices"
	"strings"
)

// Hit is a tool that a search found. A better hit has a greater Score.
type Hit struct {
	Tool  Tool `json:"tool"`
	Score int  `json:"score"`
}

// What a term of the query earns by where it was found. The steps are so far
// apart that no number of lesser matches outweighs a better one.
const (
	inDescription = 1
	inName        = 100
	startsName    = 10_000
	isName        = 1_000_000
)

// Search ranks the tools of servers by the query's words: the name itself,
// then its beginning, then a part of it, then the description. A tool must
// match all words; when none does, any. Without words all tools are listed, in
// their order. A limit of 0 means all.
func Search(servers []Server, query string, limit int) []Hit {
	terms := strings.Fields(strings.ToLower(query))
	var all, any []Hit
	for _, server := range servers {
		for _, t := range server.Tools {
			score, matched := rank(t, terms)
			hit := Hit{Tool: t, Score: score}
			if matched == len(terms) {
				all = append(all, hit)
			} else if matched > 0 {
				any = append(any, hit)
			}
		}
	}
	found := all
	if len(found) == 0 {
		found = any
	}
	slices.SortStableFunc(found, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), tie(a.Tool, b.Tool, terms))
	})
	if limit > 0 && len(found) > limit {
		found = found[:limit]
	}
	return found
}

// tie puts shorter names first: of two names that hold the words, the one with
// less beside them is nearer.
func tie(a, b Tool, terms []string) int {
	if len(terms) == 0 {
		return 0
	}
	return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Server, b.Server))
}

func rank(t Tool, terms []string) (score, matched int) {
	names := []string{strings.ToLower(t.Name), strings.ToLower(t.Function), strings.ToLower(t.Server), strings.ToLower(t.Namespace)}
	rest := strings.ToLower(t.Title + " " + t.Description)
	for _, term := range terms {
		if s := earned(names, rest, term); s > 0 {
			score += s
			matched++
		}
	}
	return score, matched
}

// earned also knows server.tool as a whole name.
func earned(names []string, rest, term string) int {
	qualified := term == names[0]+"@"+names[2] || term == names[2]+"."+names[0] || term == names[3]+"."+names[1]
	best := 0
	for _, name := range names {
		switch {
		case name == term || qualified:
			best = max(best, isName)
		case strings.HasPrefix(name, term):
			best = max(best, startsName)
		case strings.Contains(name, term):
			best = max(best, inName)
		}
	}
	if best == 0 && strings.Contains(rest, term) {
		best = inDescription
	}
	return best
}
