package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// Ways of delivering artifacts (options.artifacts.delivery).
const (
	deliverReference = "reference"
	deliverInline    = "inline"
	deliverStream    = "stream"
)

const (
	// inlineMaxBytes bounds one artifact inside an answer, whatever the caller takes.
	inlineMaxBytes = 1 << 20
	// inlineTotalBytes bounds all of them in one answer.
	inlineTotalBytes = 8 << 20
	// chunkBytes is one piece of an artifact's body in a stream.
	chunkBytes = 256 << 10
)

// delivery is how one caller gets the artifacts of one run.
type delivery struct {
	store    Artifacts
	kind     string
	maxBytes int64
	total    int64
}

func (s *Server) deliveryOf(o run.Options) (*delivery, error) {
	d := &delivery{store: s.config.Artifacts, kind: deliverReference, maxBytes: inlineMaxBytes}
	if o.Artifacts == nil {
		return d, nil
	}
	if o.Artifacts.Delivery != "" {
		d.kind = o.Artifacts.Delivery
	}
	if most := o.Artifacts.MaxBytes; most < 0 {
		return nil, &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: "options.artifacts.maxBytes", Message: "below zero"}
	} else if most > 0 {
		d.maxBytes = min(most, inlineMaxBytes)
	}
	if d.kind == deliverStream && o.Output != run.OutputStream {
		return nil, &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: "options.artifacts.delivery",
			Message: "bodies can be streamed in a stream only", Hint: `set options.output to "stream", or ask for "inline"`}
	}
	return d, nil
}

// inline puts an artifact's bytes into a, if that is wanted and within bounds.
// The result says why not: nothing is cut, the reference always stands.
func (d *delivery) inline(ctx context.Context, a *run.Artifact) (why string, err error) {
	if d.kind != deliverInline {
		return "", nil
	}
	switch {
	case a.Size > d.maxBytes:
		return fmt.Sprintf("artifact %s of %d bytes is not in this answer, which takes %d of one; fetch it by its id", a.Name, a.Size, d.maxBytes), nil
	case d.total+a.Size > inlineTotalBytes:
		return fmt.Sprintf("artifact %s is not in this answer, which takes %d bytes of all; fetch it by its id", a.Name, inlineTotalBytes), nil
	}
	_, file, err := d.store.OpenBlob(ctx, a.ID)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, a.Size+1))
	if err != nil {
		return "", err
	}
	if int64(len(data)) != a.Size {
		return "", fmt.Errorf("artifact %s has not the size that is on record: %w", a.ID, errdefs.ErrDataLoss)
	}
	d.total += a.Size
	a.Data = &data
	return "", nil
}

// inlineAll is inline for a whole result.
func (d *delivery) inlineAll(ctx context.Context, r *run.Result) error {
	for i := range r.Artifacts {
		why, err := d.inline(ctx, &r.Artifacts[i])
		if err != nil {
			return err
		}
		if why != "" {
			r.Logs = append(r.Logs, run.Log{Level: "warn", Code: codeNotInlined, Message: why, TS: time.Now().UTC()})
		}
	}
	return nil
}

const codeNotInlined = "artifact_not_inlined"

// delivering adds artifacts' bodies to a stream of frames: inside the artifact
// frame, or as chunks after the end.
type delivering struct {
	reader
	*delivery
	ctx   context.Context
	last  int64 // seq of the frame sent last
	queue []string
}

func (d *delivering) event(e run.Event) error {
	d.last = e.Seq
	a, ok := e.Payload.(*run.Artifact)
	if !ok {
		return d.reader.event(e)
	}
	if d.kind == deliverStream {
		d.queue = append(d.queue, a.ID)
	}
	// Why an artifact is not inline its frame tells by its size: a log frame
	// here would not be in the run's log.
	if _, err := d.inline(d.ctx, a); err != nil {
		return err
	}
	return d.reader.event(e)
}

// bodies sends what is queued, strictly after the end. The frames go on with
// seq; they are not part of the log. One that has gone meanwhile is passed over:
// it has no artifact.end.
func (d *delivering) bodies() error {
	for _, id := range d.queue {
		if err := d.body(id); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func (d *delivering) body(id string) error {
	_, file, err := d.store.OpenBlob(d.ctx, id)
	if err != nil {
		return err
	}
	defer file.Close()
	buf := make([]byte, chunkBytes)
	for {
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		n, err := io.ReadFull(file, buf)
		if n > 0 {
			if err := d.send(run.EventChunk, &run.ChunkFrame{ID: id, Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return d.send(run.EventChunkEnd, &run.ChunkFrame{ID: id})
		}
		if err != nil {
			return err
		}
	}
}

func (d *delivering) send(kind string, payload any) error {
	d.last++
	return d.reader.event(run.Event{Type: kind, Seq: d.last, TS: time.Now().UTC(), Payload: payload})
}
