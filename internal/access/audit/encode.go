// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// Millis is a duration that is written in milliseconds, with three decimals.
type Millis time.Duration

// mostMillis is the longest duration, about 285 years, at which a float64 still
// resolves microseconds.
const mostMillis = 9_000_000_000_000

// MarshalJSON writes milliseconds.
func (m Millis) MarshalJSON() ([]byte, error) {
	us := max(-mostMillis*1000, min(mostMillis*1000, time.Duration(m).Microseconds()))
	return strconv.AppendFloat(nil, float64(us)/1000, 'f', -1, 64), nil
}

// UnmarshalJSON reads milliseconds.
func (m *Millis) UnmarshalJSON(text []byte) error {
	ms, err := strconv.ParseFloat(string(text), 64)
	if err != nil || !(math.Abs(ms) <= mostMillis) {
		return fmt.Errorf("%q is not a number of milliseconds", text)
	}
	*m = Millis(time.Duration(math.Round(ms*1000)) * time.Microsecond)
	return nil
}

// Append appends the record to b as one line, with a final newline.
func Append(b []byte, r Record) []byte {
	r.clean()
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if enc.Encode(r) != nil {
		return b // no field can fail to encode: times are bounded
	}
	return escape(b, out.Bytes())
}

// escape appends a line of JSON to b with every non-printing rune as \u:
// encoding/json leaves those above 0x7e as they are, and a record that is shown on
// a terminal must not control it.
func escape(b, line []byte) []byte {
	for i := 0; i < len(line); {
		c := line[i]
		if c < 0x7f {
			b = append(b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(line[i:])
		switch {
		case unicode.IsPrint(r):
			b = append(b, line[i:i+n]...)
		case r > 0xffff:
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		i += n
	}
	return b
}

// decode parses one line; its error says what is wrong with the line.
func decode(line []byte) (Record, error) {
	var r Record
	var head struct {
		Version int `json:"v"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return r, err
	}
	switch {
	case head.Version > Version:
		return r, fmt.Errorf("format version %d is newer than this program", head.Version)
	case head.Version < 1:
		return r, fmt.Errorf("it has no version (v)")
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return Record{}, err
	}
	if !slices.Contains(Kinds(), r.Kind) {
		return Record{}, fmt.Errorf("kind %q is unknown", clip(string(r.Kind), 32))
	}
	if r.clean(); r.Time.IsZero() {
		return Record{}, fmt.Errorf("it has no time")
	}
	return r, nil
}
