package link

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
)

// jobName is engine.JobDir as seen from a control directory.
const jobName = "job"

// PlaceFiles writes a job's files below controlDir/job, readable by any uid,
// for engines that mount controlDir. A path that is not local, or is there
// already, is errdefs.ErrInvalidArgument.
func PlaceFiles(controlDir string, files []engine.File) error {
	if err := placeFiles(controlDir, files); err != nil {
		return fmt.Errorf("files of the job: %w", err)
	}
	return nil
}

func placeFiles(controlDir string, files []engine.File) error {
	control, err := os.OpenRoot(controlDir)
	if err != nil {
		return err
	}
	defer control.Close()
	if err := makeDir(control, jobName); err != nil {
		return err
	}
	job, err := control.OpenRoot(jobName)
	if err != nil {
		return err
	}
	defer job.Close()
	for _, f := range files {
		if err := place(job, f); err != nil {
			return fmt.Errorf("%q: %w", f.Path, err)
		}
	}
	return nil
}

func place(job *os.Root, f engine.File) error {
	if !filepath.IsLocal(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "." {
		return fmt.Errorf("not a path below the job's directory: %w", errdefs.ErrInvalidArgument)
	}
	if err := makeDirs(job, path.Dir(f.Path)); err != nil {
		return err
	}
	file, err := job.OpenFile(f.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("there are two of that name: %w", errdefs.ErrInvalidArgument)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(f.Data)
	// Chmod, for the umask may not take from what a stranger's uid has to read.
	return errors.Join(err, file.Chmod(f.Mode&0o755|0o444), file.Close())
}

// makeDirs makes dir and what is above it.
func makeDirs(job *os.Root, dir string) error {
	if dir == "." {
		return nil
	}
	if err := makeDirs(job, path.Dir(dir)); err != nil {
		return err
	}
	return makeDir(job, dir)
}

func makeDir(root *os.Root, dir string) error {
	err := root.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrExist) {
		info, err := root.Lstat(dir)
		if err == nil && !info.IsDir() {
			err = fmt.Errorf("%q is a file: %w", dir, errdefs.ErrInvalidArgument)
		}
		return err
	}
	if err != nil {
		return err
	}
	return root.Chmod(dir, 0o755)
}
