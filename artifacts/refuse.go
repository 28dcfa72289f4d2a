package artifacts

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// ErrQuota is what an index says of a content that would lead over the quota.
var ErrQuota = fmt.Errorf("the quota is used up: %w", errdefs.ErrResourceExhausted)

func tooLarge(name string, limit int64) error {
	return &run.Error{Code: run.CodeTooLarge, Class: errdefs.ErrOutOfRange,
		Message: fmt.Sprintf("artifact %q is larger than %d bytes", title(name), limit)}
}

func overQuota(a Artifact, quota int64) error {
	return &run.Error{Code: run.CodeQuotaExceeded, Class: errdefs.ErrResourceExhausted,
		Message: fmt.Sprintf("artifact %q of %d bytes would lead over the store's quota of %d", a.Title, a.Size, quota),
		Hint:    "delete artifacts, or wait until their time is up"}
}

func notAsAnnounced(name string, has string, announced int64) error {
	return &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument,
		Message: fmt.Sprintf("artifact %q has %s bytes, announced were %d", title(name), has, announced)}
}

// diskError tells a full disk from other faults; EFBIG is the daemon's own
// limit on the size of files, which is no better than a full disk. What is told
// to callers already stays as it is.
func diskError(name string, err error) error {
	var known *run.Error
	if errors.As(err, &known) {
		return err
	}
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if errors.Is(err, full) {
			return &run.Error{Code: run.CodeDiskFull, Class: errdefs.ErrResourceExhausted,
				Message: fmt.Sprintf("no space left for artifact %q: %v", title(name), full)}
		}
	}
	return fmt.Errorf("artifact %q: %w", title(name), err)
}
