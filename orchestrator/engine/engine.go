// Package engine is the contract between mcpx and what makes containers.
//
// An Engine makes containers, each for one run. A container lives through one
// line of calls:
//
//	Prepare → Run → Collect → Remove
//
// Prepare and Run are apart so that containers can wait ahead of their job
// (a pool); what is known only with the job travels in Job. Collect may be left
// out. Remove is due on every path, also when Run failed or was never called.
//
// Nothing above an engine may assume a disk shared with the container: the job,
// its files, output and outbox all pass through the types here.
package engine

import (
	"context"
	"io"
	"io/fs"
	"net"
	"time"
)

// Engine makes containers. All methods are safe for concurrent use.
type Engine interface {
	// Name is the engine's kind: "docker", "containerd", "oci", "fake".
	Name() string
	// Info tells what the engine can do. An engine that does not answer is
	// errdefs.ErrUnavailable.
	Info(context.Context) (Info, error)
	// EnsureImage makes ref usable and tells its facts. errdefs.ErrNotFound
	// when it is not there and pull does not bring it; nothing is left behind.
	EnsureImage(ctx context.Context, ref string, pull PullPolicy) (Image, error)
	// Prepare creates and starts a container whose init has connected through
	// spec.Control and waits for its job. On error nothing is left behind.
	Prepare(context.Context, Spec) (Container, error)
	// Sweep removes every container that carries Spec.Owner owner, in any
	// state, and nothing else; it returns how many.
	Sweep(ctx context.Context, owner string) (int, error)
	// Close frees what the engine holds on this side; containers are not touched.
	Close() error
}

// Container is one prepared container. Its methods are called one after the
// other, in the order Run, Collect, Remove.
type Container interface {
	// ID is the engine's own name for it.
	ID() string
	// Run hands the job to init and returns when no process of the script is
	// left and all output has been written to stdio. It is called once.
	//
	// When ctx ends, the script gets SIGTERM, then after job.Grace SIGKILL, and
	// Run still returns the Exit: with what cause ctx ended is for the caller
	// to know. A write error of stdio ends the script likewise and is returned
	// as the error beside the Exit. An error without that means that the engine
	// could not do its part (errdefs.ErrUnavailable: it went away).
	Run(ctx context.Context, job Job, stdio IO) (Exit, error)
	// Collect walks the outbox after Run, before Remove, and gives every entry
	// to sink. It fails when the outbox is gone with its container.
	Collect(ctx context.Context, sink Outbox) error
	// Remove ends whatever still runs and removes the container with all that
	// belongs to it. Idempotent; safe while Run is under way, which it ends.
	Remove(context.Context) error
}

// PullPolicy says when an image may be fetched.
type PullPolicy string

// The pull policies.
const (
	PullNever   PullPolicy = "never"
	PullMissing PullPolicy = "missing"
)

// Info is what an engine can do, as facts.
type Info struct {
	Version     string   `json:"version"`
	OS          string   `json:"os"`
	Arch        string   `json:"arch"`
	Runtimes    []string `json:"runtimes,omitempty"` // OCI runtimes, the default first
	MemoryLimit bool     `json:"memoryLimit"`        // memory limits bite
	PidsLimit   bool     `json:"pidsLimit"`
	CPULimit    bool     `json:"cpuLimit"`
	Seccomp     bool     `json:"seccomp"`
	GPU         bool     `json:"gpu"`
	Mounts      bool     `json:"mounts"`   // directories of the daemon's host can be mounted
	Enforces    bool     `json:"enforces"` // false: a stand-in for tests, isolates nothing
}

// Image is what a policy's image reference came to.
type Image struct {
	Digest string   `json:"digest"`         // of the content that will run
	Env    []string `json:"env,omitempty"`  // NAME=value
	Init   string   `json:"init,omitempty"` // init protocol that it carries, "" for none
	Size   int64    `json:"size"`           // bytes
}

// Spec is what is known of a container before its job.
type Spec struct {
	Owner string // label mcpx.owner: the daemon's life that made it
	Run   string // label mcpx.run: unique; names the container
	Image string // reference as in the policy
	// ImageInit is Image.Init of the reference: when it is InitProtocol, the
	// engine need not mount its own init.
	ImageInit string
	User      string // "uid:gid", numeric
	Limits    Limits
	Network   Network
	Mounts    []Mount // directories of the host
	Tmpfs     []Tmpfs // empty, writable, size-limited
	Outbox    int64   // size limit of /outbox in bytes; 0: none
	Workdir   string  // where init starts; must exist or be in Tmpfs
	// ControlDir is the run's own directory on this host, mounted read-only at
	// /run/mcpx by engines that share its disk; it holds the socket that
	// Control listens on.
	ControlDir string
	// Control yields init's connection. The engine calls it once, after start.
	Control Control
}

// Control waits for the connection of a container's init.
type Control interface {
	Accept(context.Context) (net.Conn, error)
}

// Network says what a container can reach.
type Network string

// NetworkNone has no interface but loopback.
const NetworkNone Network = "none"

// Limits bound a container; zero means the engine's own default, none of them unlimited by design.
type Limits struct {
	MemoryBytes int64
	CPUs        float64 // 1.5 is one and a half cores
	Pids        int64   // processes and threads of the script; an engine adds InitThreads
	NoFile      int64
	ShmBytes    int64 // /dev/shm
}

// Mount is a directory of the host in the container.
type Mount struct {
	Source   string
	Target   string
	Writable bool
}

// Tmpfs is an empty writable directory.
type Tmpfs struct {
	Target string
	Bytes  int64
	Mode   fs.FileMode // 01777 when 0
}

// Job is what a prepared container is to do.
type Job struct {
	Argv []string
	Env  []string // the whole environment, NAME=value
	Cwd  string
	// Files are placed below /run/mcpx/job, read-only for the script.
	Files []File
	// Grace is how long a script may take to end after SIGTERM.
	Grace time.Duration
}

// File is a regular file for the job directory.
type File struct {
	Path string // relative, slash-separated
	Mode fs.FileMode
	Data []byte
}

// IO connects a script. Nil members mean: Stdin empty, output dropped.
// Stdout and Stderr are each called from one goroutine at a time; a slow
// writer slows the script.
type IO struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Started is called once, when the script's process exists.
	Started func()
}

// Exit is how a script's first process ended. Either Code is ≥ 0 or Signal is set.
type Exit struct {
	Code   int    // -1 when a signal ended it
	Signal string // "SIGKILL"
	// OOMKilled: the memory limit killed a process of the container.
	OOMKilled bool
	// StartError is set when the script's process could not be started (the
	// interpreter is not in the image, the directory is missing); Code is -1.
	StartError string
}

// Outbox takes what a script left. An error of either method ends the walk.
type Outbox interface {
	// File announces a regular file. The caller writes its size bytes and
	// closes; a nil writer means that the file is not wanted.
	File(name string, mode fs.FileMode, size int64) (OutboxFile, error)
	// Skip tells of an entry that is not offered, with the reason.
	Skip(name, reason string) error
}

// OutboxFile takes one file's bytes: Commit when all came, else Abort.
type OutboxFile interface {
	io.Writer
	Commit() error
	Abort()
}

// Places in every container.
const (
	RunDir     = "/run/mcpx"           // ControlDir, read-only
	JobDir     = "/run/mcpx/job"       // Job.Files
	SocketPath = "/run/mcpx/mcpx.sock" // Control, and the script's endpoint
	SocketName = "mcpx.sock"           // its name in ControlDir
	OutboxDir  = "/outbox"
	InitPath   = "/mcpx/init"
)

// InitProtocol is the version of the protocol between init and daemon; an
// image that carries an init says so in the label mcpx.init.protocol.
const InitProtocol = "1"

// InitThreads is what init itself needs of a container's processes.
const InitThreads = 16

// Labels that every made thing carries.
const (
	LabelOwner = "mcpx.owner"
	LabelRun   = "mcpx.run"
)

// EndpointPort is where init relays 127.0.0.1 to the run's socket.
const EndpointPort = 7717
