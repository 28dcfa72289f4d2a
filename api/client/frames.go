package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"mcpx/orchestrator/run"
)

const mediaNDJSON = "application/x-ndjson"

// silence is how long a stream may say nothing before it counts as dead; the
// daemon says something every 15 seconds.
const silence = time.Minute

// Frames gives the run's events after a sequence number to yield, as they
// happen, and returns after the last.
func (c *Client) Frames(ctx context.Context, id string, after int64, yield func(run.Event) error) error {
	what := call{method: http.MethodGet, path: "/v1/runs/" + url.PathEscape(id) + "/frames", accept: mediaNDJSON,
		query: url.Values{"after": {strconv.FormatInt(after, 10)}}}
	conn, hangUp := context.WithCancelCause(ctx)
	defer hangUp(nil)
	res, err := c.send(conn, what)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return c.read(conn, what, res.Body, hangUp, yield)
}

// read gives each frame of an NDJSON stream to yield.
func (c *Client) read(ctx context.Context, what call, body io.Reader, hangUp context.CancelCauseFunc, yield func(run.Event) error) error {
	alive := time.AfterFunc(silence, func() {
		hangUp(fmt.Errorf("%s has said nothing for %s", c.endpoint, silence))
	})
	defer alive.Stop()
	lines := json.NewDecoder(body)
	for {
		var line json.RawMessage
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return c.broken(ctx, what, err)
		}
		event, ok, err := parse(line)
		if err != nil {
			return c.broken(ctx, what, err)
		}
		alive.Stop() // yield may take its time; that is no silence of the daemon
		if ok {
			if err := yield(event); err != nil {
				return err
			}
		}
		alive.Reset(silence)
	}
}

// parse reads one line; false for a ping, which is no event.
func parse(line []byte) (event run.Event, ok bool, err error) {
	var head struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return run.Event{}, false, err
	}
	if head.Type == "ping" {
		return run.Event{}, false, nil
	}
	err = json.Unmarshal(line, &event)
	return event, err == nil, err
}
