package cli

import (
	"context"
	"io"
	"strings"

	"mcpx/api/client"
	"mcpx/api/rest"
	"mcpx/artifacts"
	"mcpx/cmd/internal/daemon"
	"mcpx/orchestrator/job"
	"mcpx/orchestrator/run"
)

// records tell of runs and of what they left: a daemon, or this machine's
// state directory.
type records interface {
	Runs(context.Context, job.Filter) (rest.RunPage, error)
	Run(ctx context.Context, id string) (rest.RunDocument, error)
	Cancel(ctx context.Context, id string) (rest.CancelDocument, error)
	Frames(ctx context.Context, id string, after int64, yield func(run.Event) error) error
	Artifacts(context.Context, artifacts.Filter) (rest.ArtifactPage, error)
	// Artifact opens an artifact's bytes.
	Artifact(ctx context.Context, id string) (run.Artifact, io.ReadCloser, error)
	Close()
}

// withRecords opens the records that the flags and settings point to.
func (a *app) withRecords(ctx context.Context, p *place, do func(records) error) error {
	config, settings, err := a.config()
	if err != nil {
		return err
	}
	endpoint, err := a.recordsAt(p, config, settings)
	if err != nil {
		return err
	}
	var r records
	if endpoint != "" {
		var c *client.Client
		c, err = a.client(config, endpoint)
		r = distant{c}
	} else {
		r, err = a.openLocal(ctx, config, nil)
	}
	if err != nil {
		return err
	}
	defer r.Close()
	return do(r)
}

// recordsAt is the daemon that has the records, "" for the state directory. A
// state directory that somebody named is looked into directly; else a daemon
// on the usual socket is asked, because it may have one of its own.
func (a *app) recordsAt(p *place, config daemon.Config, settings []daemon.Setting) (string, error) {
	endpoint, err := p.endpoint(a, config)
	if err != nil || endpoint != "" || p.local || config.Where == daemon.WhereLocal {
		return endpoint, err
	}
	for _, s := range settings {
		if s.Key == "state" && s.Source != "default" {
			return "", nil
		}
	}
	usual := daemon.DefaultEndpoint(a.process)
	if daemon.Answers(strings.TrimPrefix(usual, "unix://")) {
		return usual, nil
	}
	return "", nil
}

// distant are the records of a daemon.
type distant struct{ *client.Client }

func (d distant) Artifact(ctx context.Context, id string) (run.Artifact, io.ReadCloser, error) {
	content, err := d.Client.Artifact(ctx, id)
	if err != nil {
		return run.Artifact{}, nil, err
	}
	return run.Artifact{ID: id, Name: content.Name, MIME: content.MIME, Size: content.Size, SHA256: content.SHA256}, content, nil
}
