// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// AuditConfig configures where the records of dials go and how their file is rotated.
type AuditConfig struct {
	// Path is a file, or - for standard output. Empty: no records.
	Path string `json:"path,omitempty"`
	// MaxSize is the size at which the file is rotated. Default 100MiB.
	MaxSize Size `json:"maxSize,omitempty"`
	// MaxAge is the age of the first record at which the file is rotated. Default 24h.
	MaxAge Duration `json:"maxAge,omitempty"`
	// Keep is how many rotated files are kept, 1 to 1000. Default 14.
	Keep *int `json:"keep,omitempty"`
	// Compress compresses rotated files with gzip.
	Compress bool `json:"compress,omitempty"`
	// OTLP sends the records to an OpenTelemetry collector, in addition to a file or alone.
	OTLP OTLPConfig `json:"otlp,omitempty"`
	// Strict refuses dials while records cannot be written.
	Strict bool `json:"strict,omitempty"`
}

// Size is a number of bytes written as "64KiB", "100MiB" or "1GiB" in a file.
type Size int64

// UnmarshalText reads a whole number with its unit.
func (s *Size) UnmarshalText(text []byte) error {
	for i, unit := range sizeUnits() {
		digits, ok := strings.CutSuffix(string(text), unit)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(digits, 10, 63)
		if shift := 10 * (i + 1); err == nil && n > 0 && n <= math.MaxInt64>>shift {
			*s = Size(n << shift)
			return nil
		}
	}
	return fmt.Errorf("%q is not a size such as 64KiB, 100MiB or 1GiB", text)
}

// MarshalText writes the largest unit that fits.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s Size) String() string {
	units := sizeUnits()
	for i := len(units) - 1; i >= 0; i-- {
		if shift := 10 * (i + 1); s>>shift<<shift == s && s != 0 || i == 0 {
			return strconv.FormatInt(int64(s)>>shift, 10) + units[i]
		}
	}
	return "0KiB"
}

// sizeUnits are the units, each 1,024 times the one before it.
func sizeUnits() []string { return []string{"KiB", "MiB", "GiB"} }
