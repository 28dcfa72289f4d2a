package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"mcpx/orchestrator/supervisor/proctree"
)

// record is what stands in place of labels, in a file of the container's directory.
type record struct {
	Owner string           `json:"mcpx.owner"`
	Run   string           `json:"mcpx.run"`
	Init  proctree.Process `json:"init"` // zero before it started
}

const recordName = "record.json"

func writeRecord(dir string, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, recordName)
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func readRecord(dir string) (record, error) {
	var r record
	text, err := os.ReadFile(filepath.Join(dir, recordName))
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// endWait is how long a killed process may take to be gone.
const endWait = 5 * time.Second

// endTree kills what is below init, then init. Init goes last, for it is where
// orphans come to and are found.
func endTree(ctx context.Context, init proctree.Process) error {
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	for ctx.Err() == nil {
		if found, err := proctree.Find(init.PID); errors.Is(err, proctree.ErrGone) || found != init {
			return nil
		}
		below, err := proctree.Descendants(init.PID)
		if err != nil {
			return err
		}
		if len(below) == 0 {
			return kill(init)
		}
		for _, p := range below {
			if err := kill(p); err != nil {
				return err
			}
		}
	}
	return context.Cause(ctx)
}

func kill(p proctree.Process) error {
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, proctree.ErrGone) {
		return fmt.Errorf("process %d: %w", p.PID, err)
	}
	ended, err := p.Wait(endWait)
	if err == nil && !ended {
		err = fmt.Errorf("process %d was killed and lives", p.PID)
	}
	return err
}

// removeAll removes a directory to which a script may have denied access.
func removeAll(dir string) error {
	if err := os.RemoveAll(dir); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if e != nil && e.IsDir() && errors.Is(err, fs.ErrPermission) {
			return os.Chmod(path, 0o700)
		}
		return err
	})
	return errors.Join(err, os.RemoveAll(dir))
}
