// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// full is a record with every field.
func full() Record {
	r := Record{
		Version: 1, Time: time.Date(2026, 11, 21, 23, 59, 1, 234567000, time.UTC), ID: "abc-1", Kind: KindDial, At: AtHub,
		Hub: "hub1", Agent: "agent-1", Cluster: "c1", Frontend: "connect", Caller: "unix:c1/connect", Serial: "0a1b",
		Source: "192.0.2.1:4711", Peer: &Peer{UID: 0, GID: 7, PID: 42}, Egress: "cluster",
		Metadata:    NewMetadata(map[string]string{"team": "blue"}),
		Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Subject:     "spiffe://example.org/operator/alice",
		Asked:       "db.svc:5432", Resolved: "10.0.0.1:5432", Verdict: Allow, Rule: "databases", Duration: Millis(1234567 * time.Microsecond),
		Up: 10, Down: 20,
	}
	r.End(fault.New(fault.CodeStreamReset, "the other side reset it").Whyf("a quoted header: Authorization: Bearer s3cr3t"))
	return r
}

const fullLine = `{"v":1,"time":"2026-11-21T23:59:01.234567Z","id":"abc-1","kind":"dial","at":"hub","hub":"hub1","agent":"agent-1",` +
	`"cluster":"c1","frontend":"connect","caller":"unix:c1/connect","serial":"0a1b","source":"192.0.2.1:4711",` +
	`"peer":{"uid":0,"gid":7,"pid":42},"egress":"cluster","metadata":{"team":"blue"},` +
	`"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","subject":"spiffe://example.org/operator/alice","asked":"db.svc:5432","resolved":"10.0.0.1:5432",` +
	`"verdict":"allow","rule":"databases","durationMillis":1234.567,"bytesUp":10,"bytesDown":20,"code":"stream_reset",` +
	`"reason":"the other side reset it"}` + "\n"

// TestTheFormatIsStable holds the names and the order that the reference page documents.
func TestTheFormatIsStable(t *testing.T) {
	if got := string(Append(nil, full())); got != fullLine {
		t.Errorf("a record is written as\n%s, not\n%s", got, fullLine)
	}
	back, err := decode([]byte(fullLine))
	if err != nil || !reflect.DeepEqual(back, full()) {
		t.Errorf("it is read as %+v, %v", back, err)
	}
	if got := string(Append(nil, Record{Kind: KindLost, Time: full().Time, Count: 3})); strings.Contains(got, "asked") || strings.Contains(got, "code") {
		t.Errorf("fields that are empty are written: %s", got)
	}
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	text := rapid.StringN(-1, -1, 2*limit.AuditText)
	rapid.Check(t, func(t *rapid.T) {
		r := Record{
			Kind: KindRefusal, Time: time.UnixMicro(rapid.Int64Range(0, 1<<52).Draw(t, "time")), Caller: text.Draw(t, "caller"),
			Asked: text.Draw(t, "asked"), Rule: text.Draw(t, "rule"), Up: rapid.Int64().Draw(t, "up"),
			Metadata: NewMetadata(rapid.MapOf(text, text).Draw(t, "metadata")), Duration: Millis(rapid.Int64Range(0, 1<<60).Draw(t, "duration")),
		}
		line := Append(nil, r)
		once, err := decode(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if again := Append(nil, once); !bytes.Equal(again, line) {
			t.Fatalf("%q became %q", line, again)
		}
		if !bytes.HasSuffix(line, []byte("}\n")) || bytes.Count(line, []byte("\n")) != 1 || len(line) > auditLine {
			t.Fatalf("%q is not one line of at most %d bytes", line, auditLine)
		}
		for _, c := range string(line[:len(line)-1]) {
			if !unicode.IsPrint(c) {
				t.Fatalf("%q holds %q", line, c)
			}
		}
	})
}

// TestTheLongestRecordCanBeRead fills every field with what takes most room.
func TestTheLongestRecordCanBeRead(t *testing.T) {
	long := strings.Repeat("\x01", 1<<20)
	r := full()
	v := reflect.ValueOf(&r).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.String && v.Type().Field(i).Name != "Kind" {
			f.SetString(long)
		}
	}
	pairs := map[string]string{}
	for i := range 100 {
		pairs[string(rune('A'+i))+long] = long
	}
	r.Metadata = NewMetadata(pairs)
	line := Append(nil, r)
	if len(line) > auditLine {
		t.Errorf("the line has %d bytes, a reader takes %d", len(line), auditLine)
	}
	if _, err := NewReader("x", bytes.NewReader(line)).Next(); err != nil {
		t.Error(err)
	}
	if n := len(r.Metadata.All()); n != limit.AuditPairs {
		t.Errorf("%d pairs are kept", n)
	}
}

// TestNoSecretGetsIn plants a secret wherever a caller or a fault could bring one.
func TestNoSecretGetsIn(t *testing.T) {
	const secret = "S3CR3T"
	pairs := map[string]string{}
	for _, key := range []string{"token", "Authorization", "authorization", "X-Auth", "proxy-authorization", "Cookie", "set-cookie",
		"X-Api-Key", "api_key", "apikey", "password", "passwd", "PWD", "client_secret", "credentials", "sessionid", "x.signature",
		"bearer", "id-token", "access.token", "privateKey", "t-o-k-e-n", "TOKEN\x00"} {
		pairs[key] = secret
	}
	for i, value := range []string{"Bearer " + secret, " basic " + secret, "tombolo://h/" + secret, "eyJhbGci." + secret,
		"-----BEGIN EC PRIVATE KEY-----" + secret} {
		pairs["plain"+string(rune('a'+i))] = value
	}
	for key, value := range pairs { // each alone, for few fit into one record
		r := full()
		r.Metadata = NewMetadata(map[string]string{key: value})
		if got := r.Metadata.Get(key); got != Redacted {
			t.Errorf("%q: %q was kept as %q", key, value, got)
		}
		var raw Metadata
		text, err := json.Marshal(map[string]string{key: value})
		if err != nil || json.Unmarshal(text, &raw) != nil || raw.Get(key) != Redacted {
			t.Errorf("%q is read with its value", key)
		}
		if line := Append(nil, r); bytes.Contains(line, []byte(secret)) {
			t.Errorf("%q: the line holds it: %s", key, line)
		}
	}
	for _, asked := range []string{"user:" + secret + "@host:443", "host:443/path?token=" + secret, "host:443#" + secret, "a@" + secret + "@host:443"} {
		r := Record{Kind: KindRefusal, Asked: asked, Traceparent: secret}
		r.End(fault.New(fault.CodeRequest, "the CONNECT request is malformed").Whyf("malformed header: Authorization: %s", secret).Hint("%s", secret))
		if line := string(Append(nil, r)); strings.Contains(line, secret) || !strings.Contains(line, `"asked":"host:443"`) {
			t.Errorf("%q: %s", asked, line)
		}
	}
	if m := NewMetadata(map[string]string{"team": "blue", "monday": "1"}); m.Get("team") != "blue" || m.Get("monday") != "1" {
		t.Errorf("harmless pairs were taken out: %v", m.All())
	}
}

// TestNoFieldIsForHeaders holds what the types promise.
func TestNoFieldIsForHeaders(t *testing.T) {
	for i := range reflect.TypeFor[Record]().NumField() {
		f := reflect.TypeFor[Record]().Field(i)
		name := strings.ToLower(f.Name)
		if strings.Contains(name, "header") || strings.Contains(name, "token") || f.Type.Kind() == reflect.Slice || f.Type.Kind() == reflect.Map {
			t.Errorf("field %s could hold anything", f.Name)
		}
	}
}

func TestTextsAreCutAtARune(t *testing.T) {
	for _, n := range []int{limit.AuditText - 1, limit.AuditText, limit.AuditText + 1} {
		s := strings.Repeat("a", n) + "ü"
		if got := clip(s, limit.AuditText); !strings.HasPrefix(s, got) || len(got) > limit.AuditText || strings.ContainsRune(got, unicode.ReplacementChar) {
			t.Errorf("%d: %q", n, got)
		}
	}
}

func TestEndsAreOfTheTable(t *testing.T) {
	var r Record
	for _, c := range []struct {
		f    *fault.Fault
		want string
	}{{nil, "ok"}, {fault.New(fault.CodeNoAgent, "x"), "no_agent"}, {fault.New("made_up_by_a_peer", "x"), "other"}} {
		if r.End(c.f); r.Code != c.want {
			t.Errorf("%v ends with %q", c.f, r.Code)
		}
	}
}
