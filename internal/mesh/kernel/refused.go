// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// refused is the fault of a kernel that could do what was asked, and did not: mostly another program
// has changed the same meanwhile.
func refused(what string, err error) *fault.Fault {
	return fault.New(fault.CodeKernel, what).Because(fold(err)).
		Hint("it is compared and tried again; if it continues, 'nft monitor' and 'ip monitor' show what else changes " +
			"the same, and dmesg may say why the kernel refuses")
}

// folded is an error that says once what many messages of a transaction were answered.
type folded struct{ error }

func fold(err error) error {
	if err == nil {
		return nil
	}
	return folded{err}
}

func (f folded) Unwrap() error { return f.error }

// Error shows the first error of each number that the kernel gave; 0 is for what has none.
func (f folded) Error() string {
	var numbers []unix.Errno
	all := map[unix.Errno][]error{}
	for _, e := range refusals(f.error) {
		var n unix.Errno
		errors.As(e, &n)
		if all[n] == nil {
			numbers = append(numbers, n)
		}
		all[n] = append(all[n], e)
	}
	var out []string
	for _, n := range numbers[:min(len(numbers), kernelTold)] {
		text := all[n][0].Error()
		if times := len(all[n]); times > 1 {
			text = fmt.Sprintf("%s (%d times)", text, times)
		}
		out = append(out, text)
	}
	if more := len(numbers) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, "; ")
}

// refusals are the errors of a transaction, one for each message that was refused.
func refusals(err error) []error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, refusals(e)...)
		}
		return out
	}
	return []error{err}
}
