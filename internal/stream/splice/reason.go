// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"errors"
	"slices"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// reason is the code that an error carries, or else that of a reset.
func reason(err error) fault.Code {
	var f *fault.Fault
	var reset interface{ ResetCode() uint32 }
	switch {
	case errors.As(err, &f):
		return f.Code
	case errors.As(err, &reset):
		return ResetReason(reset.ResetCode())
	}
	return fault.CodeStreamReset
}

// resetReasons are the numbers that travel in a reset (docs/reference/session.md).
func resetReasons() []fault.Code {
	return []fault.Code{
		1: fault.CodeStreamReset, 2: fault.CodeStreamIdle, 3: fault.CodeDialCanceled,
		4: fault.CodeDraining, 5: fault.CodeSessionLost, 6: fault.CodePolicyDenied,
		9: fault.CodeLimit, // 7 and 8 are the mux's own
	}
}

// ResetCode maps a reason to its number; others travel as an unspecified reset.
func ResetCode(code fault.Code) uint32 {
	return uint32(max(slices.Index(resetReasons(), code), 1))
}

// ResetReason maps the number of a peer's reset back to its reason.
func ResetReason(code uint32) fault.Code {
	if all := resetReasons(); code < uint32(len(all)) && all[code] != "" {
		return all[code]
	}
	return fault.CodeStreamReset
}
