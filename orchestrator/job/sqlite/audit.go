package sqlite

import (
	"context"

	"mcpx/orchestrator"
)

// callRecord is a row of the table calls: the audit of tool calls, which stays
// when the run's own log is pruned.
type callRecord struct {
	Seq           int64 `gorm:"primaryKey;autoIncrement"`
	At            int64 // microseconds since 1970
	RunID         string
	Principal     string
	Server        string
	Tool          string
	ArgsHash      string
	DurationMs    int64
	OK            bool   `gorm:"column:ok"`
	Error         string // its class
	Destructive   *bool
	RequestBytes  int64
	ResponseBytes int64
}

func (callRecord) TableName() string { return "calls" }

var _ orchestrator.Auditor = (*Store)(nil)

// RecordCall adds a row to the audit.
func (s *Store) RecordCall(ctx context.Context, c orchestrator.AuditedCall) error {
	return s.db.Write.WithContext(ctx).Create(&callRecord{
		At: c.At.UnixMicro(), RunID: c.RunID, Principal: c.Principal, Server: c.Call.Server, Tool: c.Call.Tool,
		ArgsHash: c.Call.ArgsHash, DurationMs: c.Call.DurationMs, OK: c.Call.OK, Error: c.Call.Error,
		Destructive: c.Call.DestructiveHint, RequestBytes: c.RequestBytes, ResponseBytes: c.ResponseBytes,
	}).Error
}
