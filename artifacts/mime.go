package artifacts

import (
	"mime"
	"path"
	"strings"

	"github.com/gabriel-vasile/mimetype"
)

// sniffBytes is what mimetype looks at.
const sniffBytes = 3072

// mimeMax is how long a media type may be; RFC 6838 allows 127 for each half
// of its name, and parameters come on top.
const mimeMax = 255

// textKinds are told by their extension: their content looks like plain text.
var textKinds = map[string]string{
	".csv": "text/csv", ".tsv": "text/tab-separated-values", ".md": "text/markdown",
	".json": "application/json", ".ndjson": "application/x-ndjson", ".yaml": "application/yaml", ".yml": "application/yaml",
	".html": "text/html", ".htm": "text/html", ".css": "text/css", ".js": "text/javascript",
	".xml": "application/xml", ".svg": "image/svg+xml",
}

// mimeType is the type that was given, else what content and name say. It is
// told to callers and never makes a browser render anything.
func mimeType(given, name string, head []byte) string {
	if kind := wellFormed(given); kind != "" {
		return kind
	}
	found := mimetype.Detect(head)
	if kind, ok := textKinds[strings.ToLower(path.Ext(name))]; ok && (isText(found) || len(head) == 0) {
		return kind
	}
	return found.String()
}

// isText: a comment is enough for text to be found to be HTML, so the name knows better.
func isText(found *mimetype.MIME) bool {
	for ; found != nil; found = found.Parent() {
		if found.Is("text/plain") {
			return true
		}
	}
	return false
}

// wellFormed writes a given type anew, so that nothing but a type can stand in
// the headers it will be in; "" when it is none.
func wellFormed(given string) string {
	kind, params, err := mime.ParseMediaType(given)
	if err != nil || !strings.Contains(kind, "/") {
		return ""
	}
	if whole := mime.FormatMediaType(kind, params); whole != "" && len(whole) <= mimeMax {
		return whole
	}
	if bare := mime.FormatMediaType(kind, nil); len(bare) <= mimeMax {
		return bare
	}
	return ""
}
