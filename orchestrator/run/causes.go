package run

import "errors"

// Why a run's context ended: context.Cause yields one of these.
var (
	ErrTimeout     = errors.New("the script's time is up")
	ErrCancelled   = errors.New("cancelled by the caller")
	ErrClientGone  = errors.New("the caller went away")
	ErrOutputLimit = errors.New("the script wrote too much")
	ErrShutdown    = errors.New("the daemon is going down")
)
