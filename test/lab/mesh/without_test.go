// SPDX-License-Identifier: Apache-2.0

//go:build lab

package mesh

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// withoutNftables is the first argument of this test binary where it runs a program on a
// kernel that has no nftables.
const withoutNftables = "run-without-nftables"

// runWithoutNftables becomes a program for which the kernel has no protocol
// NETLINK_NETFILTER: a filter of system calls answers as such a kernel does.
func runWithoutNftables(line []string) int {
	runtime.LockOSThread()
	const (
		load, equal, answer = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		number, args        = 0, 16 // within struct seccomp_data
		refuse, allow       = 0x00050000, 0x7fff0000
	)
	filter := []unix.SockFilter{
		{Code: load, K: number},
		{Code: equal, K: unix.SYS_SOCKET, Jf: 5},
		{Code: load, K: args},
		{Code: equal, K: unix.AF_NETLINK, Jf: 3},
		{Code: load, K: args + 2*8},
		{Code: equal, K: unix.NETLINK_NETFILTER, Jf: 1},
		{Code: answer, K: refuse | uint32(unix.EPROTONOSUPPORT)},
		{Code: answer, K: allow},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
	if err == nil {
		err = unix.Exec(line[0], line, os.Environ())
	}
	fmt.Fprintln(os.Stderr, "running without nftables:", err)
	return 125
}
