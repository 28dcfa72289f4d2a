package rest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"mcpx/api/rest"
	"mcpx/artifacts"
	"mcpx/artifacts/sqlite"
	"mcpx/orchestrator/run"
)

// withStore gives a daemon a real store.
func withStore(t *testing.T, o artifacts.Options) func(*rest.Config) {
	t.Helper()
	dir := t.TempDir()
	index, err := sqlite.Open(filepath.Join(dir, "mcpx.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, index.Close()) })
	store, err := artifacts.Open(filepath.Join(dir, "artifacts"), index, o)
	require.NoError(t, err)
	return func(c *rest.Config) { c.Artifacts = store }
}

func (d *daemon) upload(query, body string) rest.ArtifactDocument {
	d.t.Helper()
	got := d.do(http.MethodPost, "/v1/artifacts"+query, body)
	require.Equal(d.t, http.StatusCreated, got.status, got.body)
	var a rest.ArtifactDocument
	require.NoError(d.t, json.Unmarshal([]byte(got.body), &a))
	require.Equal(d.t, "/v1/artifacts/"+a.ID, got.header.Get("Location"))
	return a
}

func sum(data string) string {
	hash := sha256.Sum256([]byte(data))
	return hex.EncodeToString(hash[:])
}

func TestArtifactGoesInAndComesOut(t *testing.T) {
	d := start(t, newJobs(), withStore(t, artifacts.Options{}))
	const html = "<script>alert(1)</script>"
	a := d.upload("?name=../%E6%B5%8B%E8%AF%95.html&session=s&run=r&ttl=1h", html)
	require.Equal(t, sum(html), a.SHA256)
	require.EqualValues(t, len(html), a.Size)
	require.Equal(t, "s", a.Session)
	require.Equal(t, "r", a.Run)
	require.NotNil(t, a.ExpiresAt)
	path := "/v1/artifacts/" + a.ID

	got := d.do(http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, got.status)
	require.Equal(t, html, got.body)
	h := got.header
	require.Equal(t, `"`+a.SHA256+`"`, h.Get("ETag"))
	require.True(t, strings.HasPrefix(h.Get("Content-Disposition"), "attachment; "), h.Get("Content-Disposition"))
	require.Contains(t, h.Get("Content-Disposition"), "filename*=utf-8''%E6%B5%8B%E8%AF%95.html")
	require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
	require.Equal(t, "sandbox; default-src 'none'", h.Get("Content-Security-Policy"))

	head := d.do(http.MethodHead, path, "")
	require.Equal(t, http.StatusOK, head.status)
	require.Empty(t, head.body)
	require.Equal(t, fmt.Sprint(len(html)), head.header.Get("Content-Length"))
	require.Equal(t, h.Get("ETag"), head.header.Get("ETag"))

	require.Contains(t, d.do(http.MethodGet, "/v1/artifacts?run=r", "").body, a.ID)
	require.JSONEq(t, `{"artifacts":[]}`, d.do(http.MethodGet, "/v1/artifacts?run=other", "").body)

	require.Equal(t, http.StatusNoContent, d.do(http.MethodDelete, path, "").status)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		require.Equal(t, http.StatusNotFound, d.do(method, path, "").problem(t).Status)
	}
	require.Equal(t, http.StatusNotFound, d.do(http.MethodHead, path, "").status)
}

func TestRangesAndConditions(t *testing.T) {
	d := start(t, newJobs(), withStore(t, artifacts.Options{}))
	data := strings.Repeat("0123456789", 100_000)
	a := d.upload("?name=x.bin&mime=application/octet-stream", data)
	path := "/v1/artifacts/" + a.ID
	etag := `"` + a.SHA256 + `"`
	for _, c := range []struct {
		header []string
		status int
		body   string
		within string
	}{
		{[]string{"Range", "bytes=0-3"}, 206, "0123", "bytes 0-3/1000000"},
		{[]string{"Range", "bytes=-2"}, 206, "89", "bytes 999998-999999/1000000"},
		{[]string{"Range", "bytes=999995-"}, 206, "56789", "bytes 999995-999999/1000000"},
		{[]string{"Range", "bytes=0-3", "If-Range", etag}, 206, "0123", "bytes 0-3/1000000"},
		{[]string{"Range", "bytes=0-3", "If-Range", `"other"`}, 200, data, ""},
		{[]string{"If-None-Match", etag}, 304, "", ""},
		{[]string{"If-None-Match", `"other"`}, 200, data, ""},
		{nil, 200, data, ""},
	} {
		got := d.do(http.MethodGet, path, "", c.header...)
		require.Equal(t, c.status, got.status, "%v", c.header)
		require.Equal(t, c.within, got.header.Get("Content-Range"))
		require.True(t, c.body == got.body, "%v", c.header)
	}
	for _, bad := range []string{"bytes=1000000-", "bytes=5-2", "bytes=x", "lines=1-2"} {
		got := d.do(http.MethodGet, path, "", "Range", bad)
		p := got.problem(t)
		require.Equal(t, http.StatusRequestedRangeNotSatisfiable, p.Status, bad)
		require.Equal(t, "Range", p.Field)
		require.Equal(t, "bytes */1000000", got.header.Get("Content-Range"))
	}
}

func TestEmptyArtifact(t *testing.T) {
	d := start(t, newJobs(), withStore(t, artifacts.Options{}))
	a := d.upload("", "")
	require.Zero(t, a.Size)
	got := d.do(http.MethodGet, "/v1/artifacts/"+a.ID, "")
	require.Equal(t, http.StatusOK, got.status)
	require.Empty(t, got.body)
}

func TestStoreThatCanTakeNoMoreSaysWhy(t *testing.T) {
	d := start(t, newJobs(), withStore(t, artifacts.Options{MaxBytes: 10, Quota: 15}))
	announced := strings.Repeat("x", 11)
	for name, body := range map[string]io.Reader{"announced": strings.NewReader(announced), "chunked": io.MultiReader(strings.NewReader(announced))} {
		p := d.read(d.open(t.Context(), http.MethodPost, "/v1/artifacts?name=big", body)).problem(t)
		require.Equal(t, http.StatusRequestEntityTooLarge, p.Status, name)
		require.Equal(t, run.CodeTooLarge, p.Code)
		require.Contains(t, p.Detail, "10")
	}
	d.upload("?name=a", "0123456789")
	p := d.do(http.MethodPost, "/v1/artifacts?name=b", "abcdefghij").problem(t)
	require.Equal(t, http.StatusInsufficientStorage, p.Status)
	require.Equal(t, run.CodeQuotaExceeded, p.Code)
	require.Equal(t, "quota_exceeded", run.CodeQuotaExceeded)
	require.Equal(t, "disk_full", run.CodeDiskFull)
}

func TestUploadThatBreaksOffLeavesNothing(t *testing.T) {
	d := start(t, newJobs(), withStore(t, artifacts.Options{}))
	conn := d.dial("unix")
	fmt.Fprint(conn, "POST /v1/artifacts?name=half HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
	require.NoError(t, conn.Close())
	require.NoError(t, d.stop()) // waits for the handler
	page, _, err := d.config.Artifacts.List(t.Context(), artifacts.Filter{})
	require.NoError(t, err)
	require.Empty(t, page)
}

func TestBadUploadParameters(t *testing.T) {
	d := start(t, newJobs(), withStore(t, artifacts.Options{}))
	for query, field := range map[string]string{"?ttl=1": "ttl", "?ttl=-1h": "ttl", "?nme=x": "nme", "?name=a&name=b": "name"} {
		p := d.do(http.MethodPost, "/v1/artifacts"+query, "x").problem(t)
		require.Equal(t, http.StatusBadRequest, p.Status)
		require.Equal(t, field, p.Field)
	}
	for _, id := range []string{"x", "..%2f..%2fetc%2fpasswd", strings.Repeat("a", 32), strings.Repeat("A", 5000)} {
		require.Equal(t, http.StatusNotFound, d.do(http.MethodGet, "/v1/artifacts/"+id, "").problem(t).Status, id)
	}
}

func TestLargeArtifactIsWhole(t *testing.T) {
	d := start(t, newJobs(), withStore(t, artifacts.Options{}))
	data := bytes.Repeat([]byte("mcpx\x00\xff"), 4<<20)
	a := d.upload("?name=big", string(data))
	got := d.do(http.MethodGet, "/v1/artifacts/"+a.ID, "")
	require.Equal(t, a.SHA256, sum(got.body))
	require.Equal(t, sum(string(data)), a.SHA256)
}
