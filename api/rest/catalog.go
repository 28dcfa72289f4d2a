package rest

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/gin-gonic/gin"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/run"
	"mcpx/policies"
)

// ImageDocument is one image that the policies name.
type ImageDocument struct {
	Image        string   `json:"image"`
	Interpreters []string `json:"interpreters"`
	Present      bool     `json:"present"` // on the engine, now
	Digest       string   `json:"digest,omitempty"`
	Size         int64    `json:"size,omitempty"` // bytes
	// Init is the protocol of the init that it carries; without one, mcpx mounts its own.
	Init string `json:"init,omitempty"`
}

// ImageList is all images.
type ImageList struct {
	Images []ImageDocument `json:"images"`
}

// RuleDocument is what the policies say of one interpreter.
type RuleDocument struct {
	Name       string   `json:"name"`
	Kind       string   `json:"kind"`
	Image      string   `json:"image"`
	Argv       []string `json:"argv"`
	Aliases    []string `json:"aliases,omitempty"`
	Extensions []string `json:"extensions,omitempty"`
	// Settings are all values in effect, with where each comes from.
	Settings []policies.Reason `json:"settings"`
}

// PolicyDocument is the policy document in force.
type PolicyDocument struct {
	Rules []RuleDocument `json:"rules"`
}

func (s *Server) catalogRoutes() []Route {
	return []Route{
		{
			Method: http.MethodGet, Path: "/v1/images", ID: "listImages", Summary: "The images that the policies name, and which are here",
			handler: s.listImages, Answers: []Answer{jsonAnswer[ImageList](http.StatusOK, "all of them")},
		},
		{
			Method: http.MethodGet, Path: "/v1/policies", ID: "getPolicies", Summary: "The policies in force", handler: s.getPolicies,
			Answers: []Answer{jsonAnswer[PolicyDocument](http.StatusOK, "every value with where it comes from")},
		},
		{
			Method: http.MethodPost, Path: "/v1/policies/explain", ID: "explain", Summary: "What would become of a request, and why",
			Detail:  "Takes the body of POST /v1/exec and runs nothing.",
			handler: s.explain, Body: jsonBody[run.Request](),
			Answers: []Answer{jsonAnswer[policies.Explanation](http.StatusOK, "the decision; `denied` when the run would be refused")},
		},
	}
}

func (s *Server) listImages(c *gin.Context) error {
	list := ImageList{Images: []ImageDocument{}}
	for _, rule := range s.config.Policies.Rules() {
		known := slices.IndexFunc(list.Images, func(d ImageDocument) bool { return d.Image == rule.Image })
		if known >= 0 {
			list.Images[known].Interpreters = append(list.Images[known].Interpreters, rule.Name)
			continue
		}
		document, err := s.imageOf(c.Request.Context(), rule)
		if err != nil {
			return err
		}
		list.Images = append(list.Images, document)
	}
	return writeJSON(c, http.StatusOK, list)
}

// imageOf asks the engine, and brings nothing.
func (s *Server) imageOf(ctx context.Context, rule policies.Rule) (ImageDocument, error) {
	d := ImageDocument{Image: rule.Image, Interpreters: []string{rule.Name}}
	image, err := s.config.Images.EnsureImage(ctx, rule.Image, engine.PullNever)
	switch {
	case errdefs.IsNotFound(err):
		return d, nil
	case err != nil:
		return ImageDocument{}, err
	}
	d.Present, d.Digest, d.Size, d.Init = true, image.Digest, image.Size, image.Init
	return d, nil
}

func (s *Server) getPolicies(c *gin.Context) error {
	document := PolicyDocument{Rules: []RuleDocument{}}
	for _, r := range s.config.Policies.Rules() {
		document.Rules = append(document.Rules, RuleDocument{
			Name: r.Name, Kind: r.Kind, Image: r.Image, Argv: orEmpty(r.Argv), Aliases: r.Aliases, Extensions: r.Extensions,
			Settings: orEmpty(r.Effective()),
		})
	}
	return writeJSON(c, http.StatusOK, document)
}

func (s *Server) explain(c *gin.Context) error {
	var req run.Request
	if err := decode(c, &req); err != nil {
		return err
	}
	timeout, err := timeoutOf(req.Options)
	if err != nil {
		return err
	}
	script, err := s.config.Script(req)
	if err != nil {
		return err
	}
	script.Runtime = req.Options.Runtime
	explanation, err := s.config.Policies.Explain(script, policies.Facts{
		Principal: callerOf(c).Principal, Permissions: req.Options.Permissions, Timeout: timeout, Env: req.Options.Env,
	})
	if err != nil {
		return err
	}
	explanation.Argv, explanation.Settings = orEmpty(explanation.Argv), orEmpty(explanation.Settings)
	return writeJSON(c, http.StatusOK, explanation)
}

func timeoutOf(o run.Options) (time.Duration, error) {
	if o.Timeout == "" {
		return 0, nil
	}
	timeout, err := time.ParseDuration(o.Timeout)
	if err != nil || timeout <= 0 {
		return 0, &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: "options.timeout",
			Message: cut(o.Timeout) + " is not a duration above zero", Hint: `write it as "30s" or "1m30s"`}
	}
	return timeout, nil
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
