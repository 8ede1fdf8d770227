// SPDX-License-Identifier: Apache-2.0

package otlp

import "testing"

// FuzzPartial reads what a collector may answer.
func FuzzPartial(f *testing.F) {
	for _, s := range []string{"", "\x0a\x02\x08\x01", "\x0a\x05\x08\xff\xff\xff\xff", "\x12\x01x\x0a\x02\x08\x07", "\x0a\x07\x12\x03why\x08\x02"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		if n := partial(answer); n < 0 {
			t.Errorf("%d rejected", n)
		}
	})
}

// FuzzLogRecord reads lines that no Writer of ours wrote.
func FuzzLogRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"time":"2026-11-21T23:59:01.234567Z","id":"q-17","kind":"dial","peer":{"uid":0},"metadata":{"a":"b"},"durationMillis":1.5}`))
	f.Add([]byte(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","kind":"lost","count":1e400}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if r := logRecord(line, 1); r != nil && (r.Body == nil || len(r.TraceId) != 0 && len(r.TraceId) != 16) {
			t.Errorf("%v", r)
		}
	})
}
