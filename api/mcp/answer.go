package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"mcpx/orchestrator/run"
)

// Limits of an answer, in bytes. What a script prints is bounded by its policy;
// what goes into a model's context has to be far smaller. What is cut is named,
// with the address of the whole.
const (
	textStdout  = 16 << 10 // in text
	textStderr  = 8 << 10
	textValue   = 16 << 10 // the result, or all emits
	textLines   = 4 << 10  // all logs, all calls
	dataStream  = 64 << 10 // stdout and stderr in structured content, each
	dataValues  = 64 << 10 // the result, and all of emits, logs and calls, each
	maxEntries  = 200      // of each list
	codeCut     = "answer_cut"
	runsPrefix  = "mcpx://runs/"
	partsOfARun = "stdout, stderr, result, emits, logs, calls, artifacts, skipped"
)

// whole is where all of a part of a run is found.
func whole(runID, part string) string { return runsPrefix + runID + "/" + part }

// bounded is a result that is small enough to be handed to a model. Each cut
// is told by a log line.
func bounded(r run.Result) run.Result {
	b := bounding{id: r.RunID}
	r.Stdout = b.stream("stdout", r.Stdout, r.StdoutEncoding)
	r.Stderr = b.stream("stderr", r.Stderr, r.StderrEncoding)
	if len(r.Result) > dataValues {
		b.note("result", len(r.Result))
		r.Result = nil
	}
	r.Emits = fit(&b, "emits", r.Emits)
	r.Logs = fit(&b, "logs", r.Logs)
	r.Calls = fit(&b, "calls", r.Calls)
	r.Artifacts = fit(&b, "artifacts", r.Artifacts)
	if r.Skipped != nil {
		r.Skipped = fit(&b, "skipped", r.Skipped)
	}
	r.Logs = append(r.Logs, b.notes...)
	return r
}

type bounding struct {
	id    string
	notes []run.Log
}

func (b *bounding) note(part string, bytes int) {
	b.notes = append(b.notes, run.Log{Level: "warn", Code: codeCut,
		Message: fmt.Sprintf("%d bytes of %s are not in this answer; all of it: %s", bytes, part, whole(b.id, part))})
}

func (b *bounding) stream(part, s, encoding string) string {
	if len(s) <= dataStream {
		return s
	}
	kept := clip(s, dataStream)
	if encoding != "" {
		kept = s[:dataStream/4*4] // base64 in whole groups
	}
	b.note(part, len(s)-len(kept))
	return kept
}

// fit keeps the first entries of a list.
func fit[T any](b *bounding, part string, list []T) []T {
	kept, size, dropped := make([]T, 0, min(len(list), maxEntries)), 0, 0
	for _, one := range list {
		encoded, err := json.Marshal(one)
		size += len(encoded)
		if err != nil || size > dataValues || len(kept) == maxEntries || dropped > 0 {
			dropped += len(encoded)
			continue
		}
		kept = append(kept, one)
	}
	if dropped > 0 {
		b.note(part, dropped)
	}
	return kept
}

// describe tells a result in words, for clients that know only text. It holds
// all that matters.
func describe(r run.Result) string {
	var out strings.Builder
	out.WriteString(headline(r) + "\n")
	if r.Error != nil && r.State != run.Exited {
		fmt.Fprintf(&out, "error %s: %s\n", r.Error.Code, r.Error.Message)
		if r.Error.Hint != "" {
			fmt.Fprintf(&out, "hint: %s\n", r.Error.Hint)
		}
	}
	section(&out, r, "stdout", r.Stdout, r.StdoutEncoding, textStdout)
	section(&out, r, "stderr", r.Stderr, r.StderrEncoding, textStderr)
	if r.DroppedBytes > 0 {
		fmt.Fprintf(&out, "%d bytes of output were over the policy's limit and are kept nowhere\n", r.DroppedBytes)
	}
	if len(r.Result) > 0 && !sameJSON(r.Result, r.Stdout) {
		section(&out, r, "result", string(r.Result), "", textValue)
	}
	lines(&out, r, "emits", textValue, r.Emits, func(e run.Emit) string { return string(e.Value) })
	lines(&out, r, "logs", textLines, r.Logs, func(l run.Log) string { return l.Level + ": " + l.Message })
	lines(&out, r, "calls", textLines, r.Calls, describeCall)
	lines(&out, r, "artifacts", textLines, r.Artifacts, describeArtifact)
	lines(&out, r, "skipped", textLines, r.Skipped, func(s run.Skip) string { return s.Name + " was not taken: " + s.Reason })
	return strings.TrimRight(out.String(), "\n")
}

func headline(r run.Result) string {
	words := []string{string(r.State)}
	if r.ExitCode != nil {
		words = append(words, fmt.Sprintf("exit code %d", *r.ExitCode))
	}
	if r.Signal != "" {
		words = append(words, r.Signal)
	}
	if r.OOMKilled && r.State != run.OOMKilled {
		words = append(words, "a process was killed for memory")
	}
	words = append(words, (time.Duration(r.DurationMs) * time.Millisecond).String())
	if r.Interpreter != "" {
		words = append(words, r.Interpreter)
	}
	return strings.Join(append(words, "run "+r.RunID), ", ")
}

// section is a text with its heading, cut in the middle: programs say what
// they do at their beginning and what went wrong at their end.
func section(out *strings.Builder, r run.Result, name, s, encoding string, limit int) {
	if s == "" {
		return
	}
	heading := fmt.Sprintf("--- %s, %d bytes", name, len(s))
	if encoding != "" {
		heading += " of base64, since it is not UTF-8"
	}
	if cut := len(s) - limit; cut > 0 {
		head, tail := clip(s, limit*3/4), strings.ToValidUTF8(s[len(s)-limit/4:], "")
		s = fmt.Sprintf("%s\n[... %d bytes cut ...]\n%s", head, len(s)-len(head)-len(tail), tail)
		heading += "; all of it: " + whole(r.RunID, name)
	}
	fmt.Fprintf(out, "%s ---\n%s\n", heading, strings.TrimRight(s, "\n"))
}

// lines is a list with its heading, as many entries as fit.
func lines[T any](out *strings.Builder, r run.Result, name string, limit int, list []T, line func(T) string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(out, "--- %s ---\n", name)
	for i, one := range list {
		text := line(one)
		if len(text) > limit {
			fmt.Fprintf(out, "[... %d more; all of them: %s]\n", len(list)-i, whole(r.RunID, name))
			return
		}
		limit -= len(text)
		out.WriteString(text + "\n")
	}
}

func describeCall(c run.Call) string {
	outcome := "ok"
	if !c.OK {
		outcome = "failed, " + c.Error
	}
	return fmt.Sprintf("%s.%s %s, %d ms", c.Server, c.Tool, outcome, c.DurationMs)
}

func describeArtifact(a run.Artifact) string {
	return fmt.Sprintf("%s, %s, %d bytes, sha256 %s, %s", a.Name, a.MIME, a.Size, a.SHA256, a.URI)
}

// sameJSON: a script that prints one JSON value has it as its result, too.
func sameJSON(value json.RawMessage, text string) bool {
	var a, b bytes.Buffer
	return json.Compact(&a, value) == nil && json.Compact(&b, []byte(text)) == nil && bytes.Equal(a.Bytes(), b.Bytes())
}
