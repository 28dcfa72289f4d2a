package sqlite

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"gorm.io/gorm"

	"mcpx/artifacts"
	"mcpx/orchestrator/run"
)

// List yields a page, the newest first. A page's end is named by its last row's
// number, so that it can be gone on from when that row is deleted.
func (x *Index) List(ctx context.Context, now time.Time, f artifacts.Filter) ([]artifacts.Artifact, string, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = artifacts.DefaultLimit
	}
	limit = min(limit, artifacts.MaxLimit)
	q := matching(x.db.Read.WithContext(ctx), f).Where("(expires_at = 0 OR expires_at > ?)", now.UnixMicro())
	if f.After != "" {
		seq, err := parseCursor(f.After)
		if err != nil {
			return nil, "", err
		}
		q = q.Where("seq < ?", seq)
	}
	var records []record
	if err := q.Order("seq DESC").Limit(limit + 1).Find(&records).Error; err != nil {
		return nil, "", err
	}
	next := ""
	if len(records) > limit {
		records = records[:limit]
		next = strconv.FormatInt(records[limit-1].Seq, 10)
	}
	page := make([]artifacts.Artifact, len(records))
	for i, r := range records {
		page[i] = r.artifact()
	}
	return page, next, nil
}

// matching applies what f asks for. The narrowest condition comes first and has
// the index; the plus keeps SQLite from choosing another one's, which could
// belong to a principal with a million rows.
func matching(q *gorm.DB, f artifacts.Filter) *gorm.DB {
	keep := ""
	for _, c := range []struct{ column, value string }{{"run", f.Run}, {"session", f.Session}, {"principal", f.Principal}} {
		if c.value != "" {
			q = q.Where(keep+c.column+" = ?", c.value)
			keep = "+"
		}
	}
	return q
}

func parseCursor(after string) (int64, error) {
	seq, err := strconv.ParseInt(after, 10, 64)
	if err != nil || seq <= 0 {
		return 0, &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Field: "after",
			Message: fmt.Sprintf("%.40q is not the `next` of a page", after)}
	}
	return seq, nil
}
