package seccomp

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// Tests of an argument of a system call: the jump instructions of the kernel's filters.
const (
	Equals = 0x15 // the argument is K
	HasBit = 0x45 // the argument has a bit of K
)

// Argument restricts a refusal to calls with a matching argument.
type Argument struct {
	N    int    // index of the argument, from 0
	Test uint16 // Equals or HasBit
	K    uint32 // compared with the lower half of the argument
}

// Refuse makes the kernel fail a system call with the error answer, in all threads of the process. If
// only is not nil, calls with another argument succeed. This cannot be undone, so call it in a process
// that the test starts for this purpose.
func Refuse(call uint32, only *Argument, answer syscall.Errno) error {
	const (
		prctlNoNewPrivileges = 38
		seccomp, setFilter   = 317, 1
		allThreads           = 1
		load, ret            = 0x20, 0x06 // of Linux's filter.h
		refuse, allow        = 0x00050000, 0x7fff0000
	)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	type instruction struct {
		code         uint16
		onYes, onNot uint8
		k            uint32
	}
	refusal := []instruction{{ret, 0, 0, refuse | uint32(answer)}}
	if only != nil {
		refusal = []instruction{
			{load, 0, 0, uint32(16 + 8*only.N)}, // the lower half
			{only.Test, 0, 1, only.K},
			refusal[0],
		}
	}
	filter := append([]instruction{
		{load, 0, 0, 0}, // the number of the call
		{Equals, 0, uint8(len(refusal)), call},
	}, refusal...)
	filter = append(filter, instruction{ret, 0, 0, allow})
	program := struct {
		n      uint16
		filter *instruction
	}{uint16(len(filter)), &filter[0]}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prctlNoNewPrivileges, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("prctl: %w", errno)
	}
	if r, _, errno := syscall.RawSyscall(seccomp, setFilter, allThreads, uintptr(unsafe.Pointer(&program))); errno != 0 || r != 0 {
		return fmt.Errorf("seccomp: %w (%d)", errno, r)
	}
	return nil
}
