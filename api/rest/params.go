package rest

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/gin-gonic/gin"

	"mcpx/orchestrator/run"
)

func invalidParam(name, message, hint string) error {
	return &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrInvalidArgument, Field: cut(name), Message: message, Hint: hint}
}

func parseQuery(raw string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalidParam("", "the query is malformed: "+err.Error(), "")
	}
	return query, nil
}

// maxLimit is the largest page of any listing.
const maxLimit = 1000

// limitParam yields 0 for the listing's own page size.
func limitParam(c *gin.Context) (int, error) {
	text := c.Query("limit")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxLimit {
		return 0, invalidParam("limit", fmt.Sprintf("%q is not a number from 1 to %d", cut(text), maxLimit), "")
	}
	return n, nil
}

// statesParam takes state=queued&state=running and state=queued,running alike.
func statesParam(c *gin.Context) ([]run.State, error) {
	var states []run.State
	for _, value := range c.QueryArray("state") {
		for word := range strings.SplitSeq(value, ",") {
			state := run.State(word)
			if !slices.Contains(allStates(), state) {
				return nil, invalidParam("state", fmt.Sprintf("%q is no state", cut(word)), "one of "+joinStates())
			}
			states = append(states, state)
		}
	}
	return states, nil
}

func allStates() []run.State {
	return []run.State{run.Queued, run.Starting, run.Running, run.Exited, run.Signalled, run.TimedOut,
		run.OOMKilled, run.OutputLimit, run.Cancelled, run.Denied, run.Failed, run.Lost}
}

func joinStates() string {
	var names []string
	for _, s := range allStates() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// ttlParam takes a Go duration; 0 is the store's default.
func ttlParam(c *gin.Context) (time.Duration, error) {
	text := c.Query("ttl")
	if text == "" {
		return 0, nil
	}
	ttl, err := time.ParseDuration(text)
	if err != nil || ttl <= 0 {
		return 0, invalidParam("ttl", fmt.Sprintf("%q is not a duration above zero", cut(text)), `write it as "24h" or "90m"`)
	}
	return ttl, nil
}
