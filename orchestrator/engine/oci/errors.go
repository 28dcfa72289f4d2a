package oci

import (
	"fmt"

	"github.com/containerd/errdefs"

	"mcpx/orchestrator/run"
)

// unavailable is that this machine lacks what containers are made with.
func unavailable(why string) error {
	return &run.Error{
		Code: run.CodeEngineUnavailable, Class: errdefs.ErrUnavailable,
		Message: "no OCI runtime: " + why,
		Hint:    "install crun (`apt-get install crun`), or choose another engine with --engine",
	}
}

// noPrivilege is that this process may not do what a container takes.
func noPrivilege(why string) error {
	return &run.Error{
		Code: run.CodeEngineUnavailable, Class: errdefs.ErrFailedPrecondition,
		Message: "making containers without a daemon takes the privileges of root: " + why,
		Hint:    "run mcpx as root, or choose another engine with --engine",
	}
}

// gone is that somebody removed the container under us.
func (c *Container) gone() error {
	by := "somebody else"
	if c.isRemoved() {
		by = "its own daemon"
	}
	return &run.Error{
		Code: run.CodeInternal, Class: errdefs.ErrAborted,
		Message: fmt.Sprintf("the container of run %s was removed by %s before the script's end was seen", c.spec.Run, by),
	}
}
