package script

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// readFile reads a script once, from one descriptor. A fifo or a device neither
// blocks nor is touched more than by looking at it.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	if err := regular(path, info); err != nil {
		return nil, err
	}
	// Between Stat and here it may have become a fifo, whose reader would wait.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, unreadable(path, err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, unreadable(path, err)
	}
	if err := regular(path, info); err != nil {
		return nil, err
	}
	return readSize(f, path, info.Size())
}

// readSize reads no more than the size that the file said it has. Kernel files
// (/proc/kmsg) say 0; to read on would wait for ever, or show what is no script.
func readSize(f *os.File, path string, size int64) ([]byte, error) {
	if size > MaxBytes {
		return nil, tooLarge(size, fieldFile)
	}
	text := make([]byte, size)
	n, err := io.ReadFull(f, text)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, unreadable(path, err)
	}
	return text[:n], nil
}

func regular(path string, info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return invalidScript(fieldFile, brief(path)+" is a directory", "name a file in it, as in "+brief(filepath.Join(path, "main.py")))
	default:
		return invalidScript(fieldFile, brief(path)+" is not a regular file", "send its content as source")
	}
}

// unreadable tells why an existing file can't be had.
func unreadable(path string, err error) error {
	if missing(err) {
		return notFound(path, []string{path}, "check the path, or send the text as source")
	}
	why := err
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		why = at.Err
	}
	e := &run.Error{Code: run.CodeInvalidScript, Class: errdefs.ErrInvalidArgument, Field: fieldFile,
		Message: "read " + brief(path) + ": " + why.Error(), Hint: "send the text as source"}
	if errors.Is(err, fs.ErrPermission) {
		e.Class, e.Hint = errdefs.ErrPermissionDenied, "make it readable for the daemon, or send the text as source"
	}
	return e
}
