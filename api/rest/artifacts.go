package rest

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/containerd/errdefs"
	"github.com/gin-gonic/gin"

	"mcpx/artifacts"
	"mcpx/orchestrator/run"
)

// ArtifactDocument is an artifact in a listing, and the answer to an upload.
type ArtifactDocument struct {
	run.Artifact
	Title     string     `json:"title,omitempty"` // the name as it was given
	Run       string     `json:"run,omitempty"`
	Session   string     `json:"session,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

// ArtifactPage is a page of a listing.
type ArtifactPage struct {
	Artifacts []ArtifactDocument `json:"artifacts"`
	Next      string             `json:"next,omitempty"`
}

func describe(a artifacts.Artifact) ArtifactDocument {
	d := ArtifactDocument{Artifact: a.Ref(), Title: a.Title, Run: a.Run, Session: a.Session, CreatedAt: a.CreatedAt}
	if !a.ExpiresAt.IsZero() {
		d.ExpiresAt = &a.ExpiresAt
	}
	return d
}

func (s *Server) artifactRoutes() []Route {
	const path = "/v1/artifacts/:id"
	anything := Answer{http.StatusOK, "*/*", nil, "the bytes, as an attachment"}
	part := Answer{http.StatusPartialContent, "*/*", nil, "the range that was asked for"}
	params := []Param{
		pathID("the artifact"),
		{In: inHeader, Name: "Range", Kind: "string", Detail: "a part of it (RFC 9110)"},
		{In: inHeader, Name: "If-None-Match", Kind: "string", Detail: "the ETag that is known; it is the sha256 in quotes"},
	}
	same := Answer{http.StatusNotModified, "", nil, "what is known is still right"}
	return []Route{
		{
			Method: http.MethodGet, Path: "/v1/artifacts", ID: "listArtifacts", Summary: "List artifacts, the newest first",
			handler: s.listArtifacts,
			Params: []Param{
				query("run", "string", "only what this run left"), query("session", "string", "only this session"),
				limitQuery(artifacts.DefaultLimit), query("after", "string", "`next` of the page before"),
			},
			Answers: []Answer{jsonAnswer[ArtifactPage](http.StatusOK, "a page; `next` is absent on the last one")},
		},
		{
			Method: http.MethodPost, Path: "/v1/artifacts", ID: "uploadArtifact", Summary: "Store bytes", handler: s.upload,
			Params: []Param{
				query("name", "string", "its file name; what is not safe in one is replaced"),
				query("mime", "string", "its media type; found from content and name when left out"),
				query("run", "string", "the run it belongs to"), query("session", "string", "the session it belongs to"),
				query("ttl", "string", "how long it is kept, as a duration (`24h`)"),
			},
			Body:    &Body{Media: "*/*"},
			Answers: []Answer{jsonAnswer[ArtifactDocument](http.StatusCreated, "it is stored; Location is its address")},
		},
		{Method: http.MethodGet, Path: path, ID: "getArtifact", Summary: "Download an artifact", handler: s.download, Params: params, Answers: []Answer{anything, part, same}},
		{
			Method: http.MethodHead, Path: path, ID: "headArtifact", Summary: "Size, type and hash of an artifact", handler: s.download, Params: params,
			Answers: []Answer{{http.StatusOK, "", nil, "the headers of a download"}, same},
		},
		{
			Method: http.MethodDelete, Path: path, ID: "deleteArtifact", Summary: "Delete an artifact", handler: s.deleteArtifact,
			Params: []Param{pathID("the artifact")}, Answers: []Answer{{http.StatusNoContent, "", nil, "it is gone"}},
		},
	}
}

func (s *Server) listArtifacts(c *gin.Context) error {
	limit, err := limitParam(c)
	if err != nil {
		return err
	}
	page, next, err := s.config.Artifacts.List(c.Request.Context(), artifacts.Filter{
		Run: c.Query("run"), Session: c.Query("session"), After: c.Query("after"), Limit: limit,
		Principal: scope(c),
	})
	if err != nil {
		return err
	}
	document := ArtifactPage{Artifacts: make([]ArtifactDocument, len(page)), Next: next}
	for i, a := range page {
		document.Artifacts[i] = describe(a)
	}
	return writeJSON(c, http.StatusOK, document)
}

// upload stores a body. Nothing of it is seen before it has come whole.
func (s *Server) upload(c *gin.Context) error {
	ttl, err := ttlParam(c)
	if err != nil {
		return err
	}
	w, err := s.config.Artifacts.Create(c.Request.Context(), artifacts.Meta{
		Name: c.Query("name"), MIME: c.Query("mime"), Size: c.Request.ContentLength, TTL: ttl,
		Run: c.Query("run"), Session: c.Query("session"), Principal: callerOf(c).Principal,
	})
	if err != nil {
		discard(c)
		return err
	}
	defer w.Abort()
	if err := receive(c, w); err != nil {
		return err
	}
	a, err := w.Commit()
	if err != nil {
		return err
	}
	c.Header("Location", "/v1/artifacts/"+a.ID)
	return writeJSON(c, http.StatusCreated, describe(a))
}

// receive copies a body, telling the store's refusals from a body that stops short.
func receive(c *gin.Context, w io.Writer) error {
	in := bodyOf(c)
	store := &keepError{Writer: w}
	if _, err := io.Copy(store, in); store.err != nil {
		discard(c)
		return store.err
	} else if err != nil {
		return bodyFailure(err)
	}
	return in.release()
}

// keepError remembers a writer's error.
type keepError struct {
	io.Writer
	err error
}

func (k *keepError) Write(p []byte) (n int, err error) {
	n, k.err = k.Writer.Write(p)
	return n, k.err
}

// discard reads on for a while, so that a caller in the middle of sending gets
// to see the answer.
func discard(c *gin.Context) {
	in := bodyOf(c)
	io.CopyN(io.Discard, in, maxDrain) //nolint:errcheck // the answer comes anyway
	in.release()                       //nolint:errcheck // as above
}

// download serves a stranger's bytes: never for a browser to render, whatever
// they say they are.
func (s *Server) download(c *gin.Context) error {
	a, file, err := s.ownArtifact(c)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := satisfiable(c.GetHeader("Range"), a.Size); err != nil {
		c.Header("Content-Range", fmt.Sprintf("bytes */%d", a.Size))
		return err
	}
	h := c.Writer.Header()
	h.Set("Content-Type", a.MIME)
	h.Set("Content-Disposition", artifacts.ContentDisposition(a))
	h.Set("ETag", `"`+a.SHA256+`"`)
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Cache-Control", "private, no-cache")
	http.ServeContent(c.Writer, c.Request, "", a.CreatedAt, file)
	return nil
}

// satisfiable has net/http's own reading of a Range judge it, so that the
// refusal can be a problem document.
func satisfiable(header string, size int64) error {
	if header == "" {
		return nil
	}
	probe := &probeWriter{header: http.Header{}}
	http.ServeContent(probe, &http.Request{Method: http.MethodHead, Header: http.Header{"Range": {header}}}, "x.bin", time.Time{}, sized(size))
	if probe.status != http.StatusRequestedRangeNotSatisfiable {
		return nil
	}
	return &run.Error{Code: run.CodeInvalidRequest, Class: errdefs.ErrOutOfRange, Field: "Range",
		Message: fmt.Sprintf("%q is not within the artifact's %d bytes", cut(header), size)}
}

// sized is content of which only the size matters.
type sized int64

func (n sized) Read([]byte) (int, error) { return 0, io.EOF }

func (n sized) Seek(_ int64, whence int) (int64, error) {
	if whence == io.SeekEnd {
		return int64(n), nil
	}
	return 0, nil
}

// probeWriter keeps the status of an answer that goes nowhere.
type probeWriter struct {
	header http.Header
	status int
}

func (p *probeWriter) Header() http.Header         { return p.header }
func (p *probeWriter) Write(b []byte) (int, error) { return len(b), nil }
func (p *probeWriter) WriteHeader(status int)      { p.status = status }

func (s *Server) deleteArtifact(c *gin.Context) error {
	_, file, err := s.ownArtifact(c)
	if err != nil {
		return err
	}
	file.Close()
	if err := s.config.Artifacts.Delete(c.Request.Context(), c.Param("id")); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}
