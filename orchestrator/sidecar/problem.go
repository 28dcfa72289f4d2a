package sidecar

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// answer writes a JSON document.
func answer(w http.ResponseWriter, status int, document any) error {
	body, err := json.Marshal(document)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the script may have hung up
	return nil
}

// refuse answers with an RFC 9457 problem. What is not meant for the script,
// an error without a code, is not told to it.
func refuse(w http.ResponseWriter, err error) {
	known := &run.Error{Code: run.CodeInternal, Class: errdefs.ErrInternal, Message: "the daemon could not do it; its log says why"}
	errors.As(err, &known)
	status := statusOf(known)
	document := struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
		Code   string `json:"code"`
		Field  string `json:"field,omitempty"`
		Hint   string `json:"hint,omitempty"`
	}{"about:blank", http.StatusText(status), status, known.Message, known.Code, known.Field, known.Hint}
	body, err := json.Marshal(document)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // the script may have hung up
}

// statusOf is the HTTP status of a class. The daemon's own table is api's; a
// script only needs to tell its faults from others'.
func statusOf(err *run.Error) int {
	switch {
	case err.Code == run.CodeTooLarge && errdefs.IsOutOfRange(err):
		return http.StatusRequestEntityTooLarge
	case errdefs.IsInvalidArgument(err):
		return http.StatusBadRequest
	case errdefs.IsNotFound(err):
		return http.StatusNotFound
	case errdefs.IsPermissionDenied(err):
		return http.StatusForbidden
	case errdefs.IsConflict(err), errdefs.IsAlreadyExists(err):
		return http.StatusConflict
	case errdefs.IsResourceExhausted(err):
		return http.StatusTooManyRequests
	case errdefs.IsUnavailable(err):
		return http.StatusServiceUnavailable
	case errdefs.IsDeadlineExceeded(err):
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}
