package fake

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"mcpx/orchestrator/engine"
)

// places are the directories of this host that stand for a container's, the
// longest path first.
type places []place

type place struct {
	inside, outside string
}

// outboxName is the outbox in a container's directory.
const outboxName = "outbox"

// furnish makes what spec wants to be there.
func furnish(dir string, spec engine.Spec) (places, error) {
	p := places{{engine.RunDir, spec.ControlDir}}
	if spec.Outbox > 0 {
		outbox := filepath.Join(dir, outboxName)
		if err := makeWritable(outbox, 0); err != nil {
			return nil, err
		}
		p = append(p, place{engine.OutboxDir, outbox})
	}
	for i, t := range spec.Tmpfs {
		outside := filepath.Join(dir, fmt.Sprintf("tmpfs-%d", i))
		if err := makeWritable(outside, t.Mode); err != nil {
			return nil, err
		}
		p = append(p, place{t.Target, outside})
	}
	for _, m := range spec.Mounts {
		if _, err := os.Stat(m.Source); err != nil {
			return nil, fmt.Errorf("mount at %s: %w", m.Target, err)
		}
		p = append(p, place{m.Target, m.Source})
	}
	slices.SortFunc(p, func(a, b place) int { return len(b.inside) - len(a.inside) })
	return p, nil
}

func makeWritable(dir string, mode fs.FileMode) error {
	if mode == 0 {
		mode = 0o777 | fs.ModeSticky
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// path is where a container's path is on this host.
func (p places) path(inside string) string {
	for _, at := range p {
		rest, ok := strings.CutPrefix(inside, at.inside)
		if ok && (rest == "" || rest[0] == '/') {
			return at.outside + rest
		}
	}
	return inside
}

// words does the same for paths that stand alone, behind "=" or in a list like
// PATH; inside of other text, such as a script's, they are not touched.
func (p places) words(text string) string {
	var out strings.Builder
	for {
		end := strings.IndexAny(text, ":=")
		if end < 0 {
			out.WriteString(p.path(text))
			return out.String()
		}
		out.WriteString(p.path(text[:end]))
		out.WriteByte(text[end])
		text = text[end+1:]
	}
}

// job is a job with this host's paths, and the address of its own endpoint.
func (p places) job(job engine.Job, endpoint string) engine.Job {
	wellKnown := fmt.Sprintf("127.0.0.1:%d", engine.EndpointPort)
	job.Cwd = p.path(job.Cwd)
	job.Argv = each(job.Argv, p.words)
	job.Env = each(job.Env, func(v string) string {
		return strings.ReplaceAll(p.words(v), wellKnown, endpoint)
	})
	return job
}

func each(list []string, change func(string) string) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = change(v)
	}
	return out
}
