package supervisor

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"mcpx/orchestrator/frame"
)

// Limits of an entry's name; the daemon refuses more.
const (
	maxName  = 4096 // bytes
	maxDepth = 32   // components
)

// errEnough ends a walk that has told its entries.
var errEnough = errors.New("enough entries")

// walk tells the daemon what lies in the outbox. No process of the script is
// left, so nothing changes under way.
func (s *session) walk() {
	w := &walker{out: s.out, answers: s.answers, left: s.entries}
	err := w.root(s.config.OutboxDir)
	s.walking.Store(false) // before the daemon can have read the end
	if err == nil || errors.Is(err, errEnough) {
		err = s.out.Write(frame.Collected, nil)
	}
	if err != nil {
		s.hangUp(err)
	}
}

type walker struct {
	out     *frame.Writer
	answers <-chan bool
	dir     *os.Root
	buf     []byte
	left    int // entries that may still be seen, directories too
}

func (w *walker) root(path string) error {
	if path == "" {
		return nil
	}
	dir, err := os.OpenRoot(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	w.dir, w.buf = dir, make([]byte, frame.MaxData)
	return w.directory("", 0)
}

// directory tells the entries of one directory, which has depth components.
func (w *walker) directory(name string, depth int) error {
	entries, err := w.list(name)
	if err != nil {
		return w.skip(name, "can't be read: "+reason(err))
	}
	for _, e := range entries {
		child := e.Name()
		if name != "" {
			child = name + "/" + child
		}
		if w.left == 0 {
			if err := w.skip(child, "the outbox has more entries than are taken"); err != nil {
				return err
			}
			return errEnough
		}
		w.left--
		if err := w.entry(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// list reads one directory, sorted; of a huge one what there is room for and one more.
func (w *walker) list(name string) ([]fs.DirEntry, error) {
	f, err := w.dir.Open(cmp.Or(name, "."))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(w.left + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

func (w *walker) entry(name string, depth int) error {
	if depth > maxDepth || len(name) > maxName {
		return w.skip(name, fmt.Sprintf("its name has more than %d directories or %d bytes", maxDepth, maxName))
	}
	info, err := w.dir.Lstat(name)
	if err != nil {
		return w.skip(name, "can't be read: "+reason(err))
	}
	switch kind := info.Mode().Type(); {
	case kind.IsRegular():
		return w.file(name, info)
	case kind.IsDir():
		return w.directory(name, depth)
	default:
		return w.skip(name, "is a "+kindName(kind)+", not a regular file")
	}
}

func kindName(kind fs.FileMode) string {
	switch {
	case kind&fs.ModeSymlink != 0:
		return "symbolic link"
	case kind&fs.ModeNamedPipe != 0:
		return "named pipe"
	case kind&fs.ModeSocket != 0:
		return "socket"
	case kind&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// file offers one file and sends it if it is wanted.
func (w *walker) file(name string, info fs.FileInfo) error {
	f, err := w.open(name, info)
	if err != nil {
		return w.skip(name, "can't be read: "+reason(err))
	}
	defer f.Close()
	err = w.out.WriteMessage(frame.File, frame.FileMessage{
		Name: []byte(name), Mode: uint32(info.Mode().Perm()), Size: info.Size(),
	})
	if err != nil {
		return err
	}
	if wanted := <-w.answers; !wanted {
		return nil
	}
	return w.send(f, info.Size())
}

// open opens what Lstat saw and nothing that it would lead to.
func (w *walker) open(name string, info fs.FileInfo) (*os.File, error) {
	f, err := w.dir.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	opened, err := f.Stat()
	if err == nil && !os.SameFile(info, opened) {
		err = errors.New("it is another file now")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// send sends exactly size bytes, or says why not.
func (w *walker) send(f *os.File, size int64) error {
	for left := size; left > 0; {
		n, err := io.ReadFull(f, w.buf[:min(left, int64(len(w.buf)))])
		if err != nil {
			return w.out.WriteMessage(frame.FileAbort, frame.ReasonMessage{Reason: reason(err)})
		}
		if err := w.out.Write(frame.Data, w.buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	return w.out.Write(frame.FileEnd, nil)
}

func (w *walker) skip(name, why string) error {
	return w.out.WriteMessage(frame.Skip, frame.SkipMessage{Name: []byte(shorten(name)), Reason: why})
}

// shorten cuts a name to what the daemon takes, and so that it is still one.
func shorten(name string) string {
	if name == "" {
		return "(outbox)"
	}
	if parts := strings.SplitN(name, "/", maxDepth+1); len(parts) > maxDepth {
		name = strings.Join(parts[:maxDepth], "/")
	}
	if len(name) > maxName {
		name = strings.TrimRight(name[:maxName], "/.")
	}
	return name
}

// reason leaves the path out, which stands beside it.
func reason(err error) string {
	if path := new(fs.PathError); errors.As(err, &path) {
		err = path.Err
	}
	return err.Error()
}
