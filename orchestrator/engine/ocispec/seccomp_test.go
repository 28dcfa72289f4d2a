package ocispec_test

import (
	"encoding/binary"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"mcpx/orchestrator/engine/ocispec"
)

// verdict runs the filter, as the kernel would, over one system call. The
// words of it are big-endian here, for that is what the interpreter reads.
func verdict(t *testing.T, program []byte, machine uint32, call int, args ...uint64) uint32 {
	t.Helper()
	var raw []bpf.RawInstruction
	for at := 0; at < len(program); at += 8 {
		raw = append(raw, bpf.RawInstruction{
			Op: binary.NativeEndian.Uint16(program[at:]), Jt: program[at+2], Jf: program[at+3], K: binary.NativeEndian.Uint32(program[at+4:]),
		})
	}
	instructions, ok := bpf.Disassemble(raw)
	require.True(t, ok)
	vm, err := bpf.NewVM(instructions)
	require.NoError(t, err)
	data := binary.BigEndian.AppendUint32(nil, uint32(call))
	data = binary.BigEndian.AppendUint32(data, machine)
	data = binary.BigEndian.AppendUint64(data, 0) // instruction pointer
	for n := range 6 {
		var arg uint64
		if n < len(args) {
			arg = args[n]
		}
		data = binary.BigEndian.AppendUint32(data, uint32(arg)) // little-endian machines have the low half first
		data = binary.BigEndian.AppendUint32(data, uint32(arg>>32))
	}
	out, err := vm.Run(data)
	require.NoError(t, err)
	return uint32(out)
}

func compiled(t *testing.T) []byte {
	profile, err := ocispec.Profile()
	require.NoError(t, err)
	program, err := ocispec.Compile(profile)
	require.NoError(t, err)
	require.Less(t, len(program)/8, 4096, "the kernel takes no more")
	return program
}

func TestFilterDecidesAsTheProfileDoes(t *testing.T) {
	own, err := arch.GetInfo("")
	require.NoError(t, err)
	program := compiled(t)
	const (
		allow = uint32(unix.SECCOMP_RET_ALLOW)
		eperm = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
	)
	enosys := uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOSYS)
	for _, c := range []struct {
		call string
		args []uint64
		want uint32
	}{
		{"read", nil, allow}, {"execve", nil, allow}, {"openat2", nil, allow}, {"futex", nil, allow}, {"exit_group", nil, allow},
		{"mount", nil, eperm}, {"umount2", nil, eperm}, {"unshare", nil, eperm}, {"setns", nil, eperm}, {"keyctl", nil, eperm},
		{"add_key", nil, eperm}, {"bpf", nil, eperm}, {"reboot", nil, eperm}, {"kexec_load", nil, eperm}, {"init_module", nil, eperm},
		{"perf_event_open", nil, eperm}, {"userfaultfd", nil, eperm}, {"open_by_handle_at", nil, eperm}, {"io_uring_setup", nil, eperm},
		{"clone3", nil, enosys},
		{"clone", []uint64{unix.CLONE_VM | unix.CLONE_THREAD}, allow},
		{"clone", []uint64{unix.CLONE_NEWUSER}, eperm},
		{"clone", []uint64{unix.CLONE_NEWNS | unix.CLONE_VM}, eperm},
		{"personality", []uint64{0}, allow}, {"personality", []uint64{0xffffffff}, allow}, {"personality", []uint64{0x0400000}, eperm},
		{"socket", []uint64{unix.AF_UNIX}, allow}, {"socket", []uint64{unix.AF_INET6}, allow},
		{"socket", []uint64{unix.AF_VSOCK}, eperm}, {"socket", []uint64{unix.AF_ALG}, eperm},
		{"socket", []uint64{1<<32 | unix.AF_VSOCK}, eperm},
	} {
		number, ok := own.SyscallNames[c.call]
		require.True(t, ok, c.call)
		require.Equal(t, c.want, verdict(t, program, uint32(own.ID), number, c.args...), "%s %x", c.call, c.args)
	}
}

// Without this, a call number of another table would be read as one of ours.
func TestFilterRefusesOtherMachines(t *testing.T) {
	const i386 = 0x40000003
	program := compiled(t)
	for call := range 400 {
		require.Equal(t, uint32(unix.SECCOMP_RET_ERRNO)|uint32(unix.EPERM), verdict(t, program, i386, call), call)
	}
	own, err := arch.GetInfo("")
	require.NoError(t, err)
	if own.Name == "x86_64" {
		const x32 = 0x40000000
		require.NotEqual(t, uint32(unix.SECCOMP_RET_ALLOW), verdict(t, program, uint32(own.ID), x32|1))
	}
}

// A rule that can't be put into a program must not be left out of it.
func TestCompileRefusesWhatItDoesNotKnow(t *testing.T) {
	for name, rule := range map[string]specs.LinuxSyscall{
		"action":     {Names: []string{"read"}, Action: specs.ActNotify},
		"comparison": {Names: []string{"read"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{{Op: specs.OpGreaterThan, Value: 1}}},
		"mask":       {Names: []string{"read"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{{Op: specs.OpMaskedEqual, Value: 3, ValueTwo: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ocispec.Compile(&specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Syscalls: []specs.LinuxSyscall{rule}})
			require.Error(t, err)
		})
	}
}
