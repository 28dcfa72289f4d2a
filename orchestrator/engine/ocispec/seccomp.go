package ocispec

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	libseccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Profile is Docker's default seccomp profile, for a process without capabilities.
func Profile() (*specs.LinuxSeccomp, error) {
	profile, err := seccomp.GetDefaultProfile(&specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}})
	if err != nil {
		return nil, fmt.Errorf("seccomp profile: %w", err)
	}
	return profile, nil
}

// Compile makes the program of a profile, in the form that the kernel takes,
// for this machine's own architecture alone: calls of another one get the
// profile's default. Runtimes do the same at each start, for 20 ms or more.
func Compile(profile *specs.LinuxSeccomp) ([]byte, error) {
	policy, err := policyOf(profile)
	if err != nil {
		return nil, fmt.Errorf("seccomp filter: %w", err)
	}
	program, err := policy.Assemble()
	if err != nil {
		return nil, fmt.Errorf("seccomp filter: %w", err)
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("seccomp filter: %w", err)
	}
	var out bytes.Buffer
	for _, i := range raw {
		instruction := []any{i.Op, i.Jt, i.Jf, i.K}
		for _, field := range instruction {
			binary.Write(&out, binary.NativeEndian, field) //nolint:errcheck // a buffer takes it
		}
	}
	return out.Bytes(), nil
}

// policyOf gathers a profile's rules by what they do. A call that some rule
// lets pass without a condition needs none of its others.
func policyOf(profile *specs.LinuxSeccomp) (*libseccomp.Policy, error) {
	own, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	fallback, err := actionOf(profile.DefaultAction, profile.DefaultErrnoRet)
	if err != nil {
		return nil, err
	}
	rules := map[libseccomp.Action]map[string][]libseccomp.ArgumentConditions{}
	for _, call := range profile.Syscalls {
		action, err := actionOf(call.Action, call.ErrnoRet)
		if err != nil {
			return nil, err
		}
		conditions, err := conditionsOf(call.Args)
		if err != nil {
			return nil, err
		}
		if rules[action] == nil {
			rules[action] = map[string][]libseccomp.ArgumentConditions{}
		}
		for _, name := range call.Names {
			if _, known := own.SyscallNames[name]; known { // the others this machine does not have
				rules[action][name] = append(rules[action][name], conditions)
			}
		}
	}
	return assembled(fallback, rules), nil
}

func assembled(fallback libseccomp.Action, rules map[libseccomp.Action]map[string][]libseccomp.ArgumentConditions) *libseccomp.Policy {
	policy := &libseccomp.Policy{DefaultAction: fallback}
	for _, action := range slices.Sorted(maps.Keys(rules)) {
		group := libseccomp.SyscallGroup{Action: action}
		for _, name := range slices.Sorted(maps.Keys(rules[action])) {
			all := rules[action][name]
			if slices.ContainsFunc(all, func(c libseccomp.ArgumentConditions) bool { return len(c) == 0 }) {
				group.Names = append(group.Names, name)
				continue
			}
			for _, conditions := range all {
				group.NamesWithCondtions = append(group.NamesWithCondtions, libseccomp.NameWithConditions{Name: name, Conditions: conditions})
			}
		}
		policy.Syscalls = append(policy.Syscalls, group)
	}
	return policy
}

func actionOf(action specs.LinuxSeccompAction, errno *uint) (libseccomp.Action, error) {
	switch action {
	case specs.ActAllow:
		return libseccomp.ActionAllow, nil
	case specs.ActErrno:
		if errno == nil || *errno == uint(unix.EPERM) {
			return libseccomp.ActionErrno, nil // that stands for EPERM
		}
		return libseccomp.ActionErrno | libseccomp.Action(*errno&unix.SECCOMP_RET_DATA), nil
	}
	return 0, fmt.Errorf("action %s is not one that scripts get", action)
}

// conditionsOf knows the comparisons of Docker's profile.
func conditionsOf(args []specs.LinuxSeccompArg) (libseccomp.ArgumentConditions, error) {
	var all libseccomp.ArgumentConditions
	for _, arg := range args {
		c := libseccomp.Condition{Argument: uint32(arg.Index), Value: arg.Value}
		switch {
		case arg.Op == specs.OpEqualTo:
			c.Operation = libseccomp.Equal
		case arg.Op == specs.OpNotEqual:
			c.Operation = libseccomp.NotEqual
		case arg.Op == specs.OpLessThan:
			c.Operation = libseccomp.LessThan
		case arg.Op == specs.OpMaskedEqual && arg.ValueTwo == 0:
			c.Operation = libseccomp.BitsNotSet // the value is the mask
		default:
			return nil, fmt.Errorf("comparison %s with %d is unknown", arg.Op, arg.ValueTwo)
		}
		all = append(all, c)
	}
	return all, nil
}
