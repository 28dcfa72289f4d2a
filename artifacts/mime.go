package artifacts

import (
	"mime"
	"path"
	"strings"

	"github.com/gabriel-vasile/mimetype"
)

// sniffBytes is what mimetype looks at.
const sniffBytes = 3072

// textKinds are told by their extension: their content looks like plain text.
var textKinds = map[string]string{
	".csv": "text/csv", ".md": "text/markdown", ".json": "application/json", ".ndjson": "application/x-ndjson",
	".yaml": "application/yaml", ".yml": "application/yaml", ".html": "text/html", ".htm": "text/html",
	".css": "text/css", ".js": "text/javascript", ".xml": "application/xml", ".svg": "image/svg+xml",
}

// mimeType is the type that was given, else what content and name say. It is
// told to callers and never makes a browser render anything.
func mimeType(given, name string, head []byte) string {
	if kind, _, err := mime.ParseMediaType(given); err == nil && strings.Contains(kind, "/") {
		return given
	}
	found := mimetype.Detect(head)
	if kind, ok := textKinds[strings.ToLower(path.Ext(name))]; ok && (found.Is("text/plain") || len(head) == 0) {
		return kind
	}
	return found.String()
}
