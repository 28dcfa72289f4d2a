package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/engine"
	"mcpx/orchestrator/engine/docker"
	"mcpx/orchestrator/engine/fake"
	"mcpx/orchestrator/engine/oci"
	"mcpx/orchestrator/run"
	"mcpx/policies"
)

// LoadPolicies reads the policy file, if one is named.
func LoadPolicies(c Config) (*policies.Document, error) {
	if c.Policy == "" {
		return policies.Default(), nil
	}
	document, err := policies.Load(c.Policy)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: "policy",
			Message: err.Error(), Hint: "name a file that can be read with --policy"}
	}
	return document, err
}

// NewEngine is the list of engines.
func NewEngine(c Config, p *policies.Document, log *slog.Logger) (engine.Engine, error) {
	switch c.Engine {
	case EngineDocker:
		return newDocker(c, log)
	case EngineOCI:
		return newOCI(c, log)
	case EngineFake:
		return newFake(c, p, log)
	}
	return nil, &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrInvalidArgument, Field: "engine",
		Message: fmt.Sprintf("there is no engine %q", c.Engine), Hint: "docker and oci are"}
}

// newDocker goes without an init of this machine where there is none: the stock
// images carry theirs.
func newDocker(c Config, log *slog.Logger) (engine.Engine, error) {
	init, err := FindInit(c)
	if err != nil && c.Init != "" {
		return nil, err
	}
	return docker.New(docker.Config{Host: c.DockerHost, InitPath: init, Log: log})
}

// newOCI takes images over from Docker where there is one.
func newOCI(c Config, log *slog.Logger) (engine.Engine, error) {
	init, err := FindInit(c)
	if err != nil && c.Init != "" {
		return nil, err
	}
	dir, err := filepath.Abs(filepath.Join(c.State, "engine", "oci"))
	if err != nil {
		return nil, fmt.Errorf("directory of the oci engine: %w", err)
	}
	return oci.New(oci.Config{Dir: dir, DockerHost: c.DockerHost, InitPath: init, Log: log})
}

// newFake isolates nothing, so it is only had by asking for it.
func newFake(c Config, p *policies.Document, log *slog.Logger) (engine.Engine, error) {
	init, err := FindInit(c)
	if err != nil {
		return nil, err
	}
	log.Warn("the fake engine isolates nothing: scripts run as this user, on this machine")
	images := map[string]engine.Image{}
	for _, i := range p.Catalog().Interpreters {
		digest := sha256.Sum256([]byte(i.Image))
		images[i.Image] = engine.Image{
			Digest: "sha256:" + hex.EncodeToString(digest[:]), Init: engine.InitProtocol,
			Env: []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=/tmp"},
		}
	}
	return fake.New(fake.Config{Init: init, Dir: filepath.Join(c.State, "fake"), Images: images})
}

// initName is the program that is the first process of every container.
const initName = "mcpx-init"

// FindInit is mcpx-init on this machine: where the setting says, beside this
// program, or on the PATH.
func FindInit(c Config) (string, error) {
	if c.Init != "" {
		path, err := filepath.Abs(c.Init)
		if err != nil {
			return "", fmt.Errorf("path of mcpx-init: %w", err)
		}
		if _, err := os.Stat(path); err != nil {
			return "", noInit(err.Error())
		}
		return path, nil
	}
	if self, err := os.Executable(); err == nil {
		if beside, err := exec.LookPath(filepath.Join(filepath.Dir(self), initName)); err == nil {
			return beside, nil
		}
	}
	found, err := exec.LookPath(initName)
	if err != nil {
		return "", noInit(err.Error())
	}
	return filepath.Abs(found)
}

func noInit(why string) error {
	return &run.Error{Code: run.CodeInvalidOption, Class: errdefs.ErrFailedPrecondition, Field: "init",
		Message: "mcpx-init is not to be found: " + why,
		Hint:    "put it beside mcpx (make build does), or name it with --init or MCPX_INIT"}
}
