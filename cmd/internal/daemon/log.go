package daemon

import (
	"io"
	"log/slog"
)

// NewLog makes the logger that the settings describe; unset is the level when
// nobody chose one.
func NewLog(c Config, w io.Writer, unset slog.Level) *slog.Logger {
	level := unset
	if c.LogLevel != "" {
		level.UnmarshalText([]byte(c.LogLevel)) //nolint:errcheck // the setting's words are slog's
	}
	options := &slog.HandlerOptions{Level: level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
