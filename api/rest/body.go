package rest

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"mcpx/api/problem"
	"mcpx/orchestrator/run"
)

// maxBody is the largest JSON body: a script with its siblings and its stdin.
const maxBody = 32 << 20

// maxDrain is what is still read of a body that was refused, so that a caller
// in the middle of sending gets to see the answer.
const maxDrain = 32 << 20

// decode reads a request's JSON body into v. Whatever v does not have, and
// whatever two readers of the same JSON could understand differently, is refused.
func decode(c *gin.Context, v any) error {
	if err := wantMedia(c, "application/json"); err != nil {
		return err
	}
	body, err := readBody(c)
	if err != nil {
		return err
	}
	return Unmarshal(body, v)
}

// Unmarshal reads JSON as strictly as every surface does; its errors name the
// field that is wrong.
func Unmarshal(body []byte, v any) error {
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
		return bodyError(err)
	}
	return nil
}

// wantMedia also keeps simple requests of web pages out: a form can send
// text/plain without asking, but no JSON.
func wantMedia(c *gin.Context, want string) error {
	given := c.GetHeader("Content-Type")
	if kind, _, err := mime.ParseMediaType(given); err == nil && kind == want {
		return nil
	}
	return &run.Error{Code: problem.CodeUnsupportedMedia, Class: errdefs.ErrInvalidArgument, Field: "Content-Type",
		Message: fmt.Sprintf("%q is not %s", given, want), Hint: "send the header `Content-Type: " + want + "`"}
}

func readBody(c *gin.Context) ([]byte, error) {
	in := bodyOf(c)
	body, err := io.ReadAll(io.LimitReader(in, maxBody+1))
	if err == nil && len(body) > maxBody {
		_, err = io.CopyN(io.Discard, in, maxDrain)
		if err == nil || errors.Is(err, io.EOF) {
			err = &run.Error{Code: run.CodeTooLarge, Class: errdefs.ErrOutOfRange,
				Message: fmt.Sprintf("the body has more than %d bytes", maxBody),
				Hint:    "upload large data with POST /v1/artifacts"}
		}
	}
	return body, errors.Join(bodyFailure(err), in.release())
}

// bodyFailure names a body that stopped short; it is the caller's doing.
func bodyFailure(err error) error {
	var known *run.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return &run.Error{Code: run.CodeInvalidBody, Class: errdefs.ErrInvalidArgument, Message: "the body did not come whole: " + err.Error()}
}

// bodyError tells where a body is wrong, and what was expected there.
func bodyError(err error) error {
	e := &run.Error{Code: run.CodeInvalidBody, Class: errdefs.ErrInvalidArgument}
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		e.Field = field(syntax.JSONPointer)
		e.Message = syntaxMessage(syntax)
		return e
	}
	semantic, ok := errors.AsType[*json.SemanticError](err)
	switch {
	case !ok:
		e.Message = err.Error()
	case errors.Is(semantic, json.ErrUnknownName):
		e.Field, e.Message = field(semantic.JSONPointer), "unknown field"
		e.Hint = "GET /v1/openapi.json lists the fields; they are case-sensitive"
	default:
		e.Field = field(semantic.JSONPointer)
		e.Message = fmt.Sprintf("%s was expected, not %s", wanted(semantic.GoType), given(semantic))
	}
	return e
}

func syntaxMessage(e *jsontext.SyntacticError) string {
	switch {
	case errors.Is(e, jsontext.ErrDuplicateName):
		return "the field stands twice"
	case errors.Is(e, io.ErrUnexpectedEOF) && e.ByteOffset == 0:
		return "the body is empty"
	case errors.Is(e, io.ErrUnexpectedEOF):
		return fmt.Sprintf("the JSON ends too early, at byte %d", e.ByteOffset)
	}
	return fmt.Sprintf("not JSON at byte %d: %v", e.ByteOffset, e.Err)
}

// field writes a JSON pointer the way people write paths: options.files["a b"], options.args[2].
func field(p jsontext.Pointer) string {
	var path strings.Builder
	for token := range p.Tokens() {
		_, numeric := strconv.Atoi(token)
		switch {
		case numeric == nil && path.Len() > 0:
			fmt.Fprintf(&path, "[%s]", token)
		case !isName(token):
			fmt.Fprintf(&path, "[%q]", token)
		case path.Len() > 0:
			path.WriteString("." + token)
		default:
			path.WriteString(token)
		}
	}
	return cut(path.String())
}

// maxEcho bounds what an error repeats of a request.
const maxEcho = 200

func cut(s string) string {
	if len(s) <= maxEcho {
		return s
	}
	return strings.ToValidUTF8(s[:maxEcho], "") + "…"
}

func isName(token string) bool {
	return token != "" && strings.IndexFunc(token, func(r rune) bool {
		return r != '_' && r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) < 0
}

func wanted(t reflect.Type) string {
	if t == nil {
		return "another value"
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

func given(e *json.SemanticError) string {
	switch kind := e.JSONKind; kind {
	case '"':
		return "a string"
	case '0':
		if len(e.JSONValue) == 0 {
			return "a number"
		}
		return "the number " + cut(string(e.JSONValue))
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	case '[':
		return "a list"
	case '{':
		return "an object"
	}
	return "this"
}
