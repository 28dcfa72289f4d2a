package client

import (
	"context"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"mcpx/api/rest"
	"mcpx/artifacts"
)

// Content is an artifact's bytes. Whoever gets it closes it.
type Content struct {
	io.ReadCloser
	Size   int64 // bytes, -1 when the daemon did not say
	MIME   string
	Name   string // file name, "" when the daemon did not say
	SHA256 string
}

// Artifacts lists a page of artifacts, the newest first.
func (c *Client) Artifacts(ctx context.Context, f artifacts.Filter) (rest.ArtifactPage, error) {
	query := queryOf(map[string]string{"run": f.Run, "session": f.Session, "after": f.After})
	if f.Limit > 0 {
		query.Set("limit", strconv.Itoa(f.Limit))
	}
	var page rest.ArtifactPage
	err := c.fetch(ctx, call{method: http.MethodGet, path: "/v1/artifacts", query: query}, &page)
	return page, err
}

// Artifact opens an artifact's bytes. Reading ends with an error when they do
// not come whole; comparing the hash is up to the reader.
func (c *Client) Artifact(ctx context.Context, id string) (Content, error) {
	res, err := c.send(ctx, call{method: http.MethodGet, path: artifactPath(id)})
	if err != nil {
		return Content{}, err
	}
	// A header that does not parse names no file.
	_, disposition, _ := mime.ParseMediaType(res.Header.Get("Content-Disposition"))
	return Content{ReadCloser: res.Body, Size: res.ContentLength, MIME: res.Header.Get("Content-Type"), Name: disposition["filename"],
		SHA256: strings.Trim(res.Header.Get("ETag"), `"`)}, nil
}

// Upload stores what body yields until its end.
func (c *Client) Upload(ctx context.Context, m artifacts.Meta, body io.Reader) (rest.ArtifactDocument, error) {
	query := queryOf(map[string]string{"name": m.Name, "mime": m.MIME, "run": m.Run, "session": m.Session})
	if m.TTL > 0 {
		query.Set("ttl", m.TTL.Round(time.Millisecond).String())
	}
	var document rest.ArtifactDocument
	err := c.fetch(ctx, call{method: http.MethodPost, path: "/v1/artifacts", query: query, media: "application/octet-stream", body: body}, &document)
	return document, err
}

// DeleteArtifact removes an artifact.
func (c *Client) DeleteArtifact(ctx context.Context, id string) error {
	return c.fetch(ctx, call{method: http.MethodDelete, path: artifactPath(id)}, nil)
}

func artifactPath(id string) string { return "/v1/artifacts/" + url.PathEscape(id) }

// queryOf leaves out what is empty.
func queryOf(params map[string]string) url.Values {
	query := url.Values{}
	for name, value := range params {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}
