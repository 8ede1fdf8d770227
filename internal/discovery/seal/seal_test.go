// SPDX-License-Identifier: Apache-2.0

package seal_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

func newKeys(t testing.TB) seal.Keys {
	t.Helper()
	s, err := seal.NewSecret(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return s.Keys()
}

func newMember(t testing.TB) seal.MemberKey {
	t.Helper()
	m, err := seal.NewMemberKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func says(node string) *discovery.Member { return &discovery.Member{Node: node} }

func entryOf(t testing.TB, k seal.Keys, m seal.MemberKey, c seal.Content) *discovery.Entry {
	t.Helper()
	e, err := k.Seal(rand.Reader, m, c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// refused wants a fault of a code whose reason has a text.
func refused(t testing.TB, err error, code fault.Code, why string) {
	t.Helper()
	var f *fault.Fault
	if !errors.As(err, &f) || f.Code != code || !strings.Contains(f.Why, why) {
		t.Errorf("got %v, want %s because %q", err, code, why)
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	v := readVectors(t)
	s, m := secretOf(t, v.Secret), memberOf(t, v.MemberSeed)
	type nested struct { // fmt does not call methods of unexported fields
		secret  seal.Secret
		keys    seal.Keys
		member  *seal.MemberKey
		Sidero  seal.SideroKey
		Secrets []seal.Secret
	}
	all := nested{s, s.Keys(), &m, s.Sidero(), []seal.Secret{s}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%X", "%d", "%q", "%T %[1]p"} {
		fmt.Fprintf(&out, verb+"\n", all)
		fmt.Fprintf(&out, verb+"\n", &all)
		for _, one := range []any{s, &s, s.Keys(), m, &m, s.Sidero(), map[string]any{"a": s}} {
			fmt.Fprintf(&out, verb+"\n", one)
		}
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("x", "secret", s, "keys", s.Keys(), "member", m, "all", all, "sidero", s.Sidero())
	}
	data, err := json.Marshal([]any{s, all, s.Keys(), m})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(data)
	printed := strings.ToLower(out.String())
	for name, raw := range map[string][]byte{
		"secret": secretBytes(s.Encode()), "seed": secretBytes(m.Encode()), "verifier": v.VerifierSeed, "data": v.DataKey, "mesh": v.MeshPSK,
	} {
		decimal := strings.Trim(fmt.Sprint(raw[:6]), "[]")
		forms := []string{hex.EncodeToString(raw[:6]), decimal, strings.ReplaceAll(decimal, " ", ","), strings.ReplaceAll(decimal, " ", ", "),
			strings.ToLower(secretText(raw))[:8], fmt.Sprintf("0x%x, 0x%x, 0x%x", raw[0], raw[1], raw[2])}
		for _, form := range forms {
			if strings.Contains(printed, form) {
				t.Errorf("%s is printed as %q", name, form)
			}
		}
	}
	if !strings.Contains(printed, "(secret)") {
		t.Error("a secret is not named as one")
	}
}

func TestParseSecretRefuses(t *testing.T) {
	good := readVectors(t).Secret
	for name, text := range map[string]string{
		"empty": "", "short": good[4:], "long": good + good, "no padding": strings.TrimRight(good, "="), "url alphabet": strings.Replace(good, "A", "-", 1),
		"hex": hex.EncodeToString(secretBytes(good)), "33 bytes": secretText(make([]byte, 33)), "31 bytes": secretText(make([]byte, 31)),
		"a line end within": good[:20] + "\n" + good[20:], "line ends instead": good[:40] + "\n\n\n\n", "bits beyond the last byte": good[:42] + "9=",
	} {
		_, err := seal.ParseSecret(text)
		refused(t, err, fault.CodeSecret, "")
		if text != "" && strings.Contains(fault.From(err).Explain(), text) {
			t.Errorf("%s: the error shows the text", name)
		}
		_, err = seal.ParseMemberKey(text)
		refused(t, err, fault.CodeSecret, "")
	}
	if s := secretOf(t, " "+good+"\r\n"); s.Encode() != good || !s.Equal(secretOf(t, good)) || s.IsZero() {
		t.Error("white space around a secret changes it")
	}
	other, err := seal.NewSecret(rand.Reader)
	if err != nil || other.Equal(secretOf(t, good)) || other.Equal(seal.Secret{}) || !(seal.Secret{}).Equal(seal.Secret{}) {
		t.Error("secrets are compared wrongly", err)
	}
}

func TestIDsHaveOneSpelling(t *testing.T) {
	v := readVectors(t)
	for name, text := range map[string]string{
		"empty": "", "no prefix": v.MemberID, "upper case": strings.ToUpper(v.Cluster), "one upper": v.Cluster[:54] + strings.ToUpper(v.Cluster[54:]) + "V",
		"upper tail": "t1-" + strings.ToUpper(v.Cluster[3:]), "other version": "t2-" + v.Cluster[3:], "long": v.Cluster + "0", "short": v.Cluster[:54],
		"bits beyond": v.Cluster[:54] + "1", "a line end": v.Cluster[:54] + "\n", "w": v.Cluster[:53] + "w0", "a space": " " + v.Cluster,
	} {
		if id, err := seal.ParseClusterID(text); err == nil {
			t.Errorf("%s: %q is taken for %v", name, text, id)
		}
		rest, ok := strings.CutPrefix(text, "t1-")
		if id, err := seal.ParseMemberID(rest); ok && err == nil {
			t.Errorf("%s: %q is taken for %v", name, rest, id)
		}
	}
	var c struct {
		C seal.ClusterID
		M seal.MemberID
	}
	in := fmt.Sprintf(`{"C":%q,"M":%q}`, v.Cluster, v.MemberID)
	if err := json.Unmarshal([]byte(in), &c); err != nil || c.C.String() != v.Cluster || c.C.IsZero() || c.M.IsZero() {
		t.Errorf("read %v, %v", c, err)
	}
	if out, err := json.Marshal(c); err != nil || string(out) != in {
		t.Errorf("wrote %s, %v", out, err)
	}
}

func TestNoRandomNumbers(t *testing.T) {
	k, m := newKeys(t), newMember(t)
	for name, r := range map[string]io.Reader{"none": bytes.NewReader(nil), "too few": bytes.NewReader(make([]byte, 11)), "broken": iotest.ErrReader(io.ErrClosedPipe)} {
		_, err := seal.NewSecret(r)
		refused(t, err, fault.CodeInternal, "")
		_, err = seal.NewMemberKey(r)
		refused(t, err, fault.CodeInternal, "")
		_, err = secretOf(t, readVectors(t).Secret).Sidero().SealData(r, nil)
		refused(t, err, fault.CodeInternal, "")
		if e, err := k.Seal(r, m, seal.Content{Version: 1, TTL: time.Minute, Member: says("a")}); e != nil || err == nil {
			t.Errorf("%s: sealed all the same", name)
		}
	}
}

func TestNextVersion(t *testing.T) {
	now := time.Unix(1000, 7)
	for _, c := range []struct {
		last uint64
		now  time.Time
		want uint64
	}{
		{0, now, uint64(now.UnixNano())}, {5, now, uint64(now.UnixNano())}, {uint64(now.UnixNano()), now, uint64(now.UnixNano()) + 1},
		{math.MaxInt64 - 1, now, math.MaxInt64}, {9, time.Unix(-5, 0), 10}, {0, time.Unix(0, 0), 1},
	} {
		if got := seal.NextVersion(c.last, c.now); got != c.want {
			t.Errorf("after %d at %v: %d, want %d", c.last, c.now, got, c.want)
		}
	}
}

func TestSealRefuses(t *testing.T) {
	k, m, old := newKeys(t), newMember(t), newMember(t)
	foreign := newKeys(t).Succeed(old, m.ID())
	ok := seal.Content{Version: 1, TTL: time.Minute, Member: says("a")}
	for name, c := range map[string]struct {
		change func(*seal.Content)
		why    string
	}{
		"nothing":          {func(c *seal.Content) { c.Member = nil }, "no content"},
		"empty":            {func(c *seal.Content) { c.Member = &discovery.Member{} }, "no content"},
		"no UTF-8":         {func(c *seal.Content) { c.Member = says("\xff") }, "UTF-8"},
		"too large":        {func(c *seal.Content) { c.Member = says(strings.Repeat("a", limit.DiscoverySealed)) }, "at most 16384"},
		"version 0":        {func(c *seal.Content) { c.Version = 0 }, "version"},
		"version 2^63":     {func(c *seal.Content) { c.Version = 1 << 63 }, "version"},
		"no lease":         {func(c *seal.Content) { c.TTL = 0 }, "lease"},
		"negative lease":   {func(c *seal.Content) { c.TTL = -time.Hour }, "lease"},
		"long lease":       {func(c *seal.Content) { c.TTL = limit.DiscoveryTTL + 1 }, "lease"},
		"endless lease":    {func(c *seal.Content) { c.TTL = math.MaxInt64 }, "lease"},
		"other's cluster":  {func(c *seal.Content) { c.Succession = foreign }, "not the old member's"},
		"itself":           {func(c *seal.Content) { c.Succession = k.Succeed(m, m.ID()) }, "succeeds itself"},
		"for another one":  {func(c *seal.Content) { c.Succession = k.Succeed(old, old.ID()) }, "not the old member's"},
		"empty succession": {func(c *seal.Content) { c.Succession = &discovery.Succession{} }, "damaged"},
		"succession cut":   {func(c *seal.Content) { c.Succession = &discovery.Succession{OldMember: old.Public()} }, "damaged"},
		"small old member": {func(c *seal.Content) {
			c.Succession = &discovery.Succession{OldMember: identity(), Signature: anybodys()}
		}, "small order"},
	} {
		t.Run(name, func(t *testing.T) {
			content := ok
			c.change(&content)
			e, err := k.Seal(rand.Reader, m, content)
			refused(t, err, fault.CodeEntryInvalid, c.why)
			if e != nil {
				t.Error("there is an entry all the same")
			}
		})
	}
	most := ok
	most.Member = says(strings.Repeat("a", limit.DiscoverySealed-28-3))
	if e := entryOf(t, k, m, most); len(e.Sealed) != limit.DiscoverySealed {
		t.Errorf("the largest has %d bytes", len(e.Sealed))
	}
	short := ok
	short.TTL = 1
	if e := entryOf(t, k, m, short); e.Ttl != 1 {
		t.Errorf("the shortest lease has %d s", e.Ttl)
	}
}

// identity is the neutral point as a key: R = it and S = 0 is its signature of
// every message, as Go verifies.
func identity() []byte { return append([]byte{1}, make([]byte, 31)...) }
func anybodys() []byte { return append(identity(), make([]byte, 32)...) }

func TestKeysThatAnybodyCanSignFor(t *testing.T) {
	if !ed25519.Verify(identity(), []byte("anything"), anybodys()) {
		t.Fatal("Go refuses the key by itself now")
	}
	k, nonce := newKeys(t), make([]byte, seal.NonceSize)
	flip := func(b []byte) []byte { b = slices.Clone(b); b[31] |= 0x80; return b }
	fromHex := func(s string) []byte { b, _ := hex.DecodeString(s); return b }
	above := func(low byte) []byte { return append(append([]byte{low}, bytes.Repeat([]byte{0xff}, 30)...), 0x7f) }
	for name, key := range map[string][]byte{
		"order 1": identity(), "order 1 with a sign": flip(identity()), "order 2": above(0xec), "order 4": make([]byte, 32), "order 4, other": flip(make([]byte, 32)),
		"order 8, a": fromHex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
		"order 8, b": fromHex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85"),
		"order 8, c": fromHex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
		"order 8, d": fromHex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa"),
		"p":          above(0xed), "p+1, the neutral point again": above(0xee), "2^255-1": above(0xff), "2^256-1": flip(above(0xff)),
		"short": identity()[:31], "long": append(identity(), 0), "none": nil,
	} {
		t.Run(name, func(t *testing.T) {
			e := &discovery.Entry{Member: key, Version: 1, Ttl: 60, Removed: true, Signature: anybodys(), Admission: k.Admit(key)}
			_, err := seal.Verify(k.Cluster(), k.Verifier(), e)
			refused(t, err, fault.CodeEntryInvalid, "the key")
			_, err = seal.Verify(seal.ClusterOf(key), key, &discovery.Entry{Member: newMember(t).Public(), Version: 1, Ttl: 60, Removed: true, Signature: anybodys(), Admission: anybodys()})
			refused(t, err, fault.CodeEntryInvalid, "verifier")
			_, err = seal.VerifyProof(nonce, &discovery.Proof{Verifier: key, VerifierSignature: anybodys()})
			refused(t, err, fault.CodeEntryInvalid, "the key")
			if p, err := seal.Prove(k, nil, nonce, ""); len(key) > 0 {
				p.Member, p.MemberSignature, p.Admission = key, anybodys(), k.Admit(key)
				if err != nil {
					t.Fatal(err)
				}
				_, err = seal.VerifyProof(nonce, p)
				refused(t, err, fault.CodeEntryInvalid, "the key")
			}
		})
	}
}

func TestFieldsThatNobodyKnows(t *testing.T) {
	k, m := newKeys(t), newMember(t)
	field := func(n int) []byte {
		return append([]byte{0xa2, 0x06, byte(n | 0x80), byte(n >> 7)}, make([]byte, n)...)
	} // number 100
	bare := &discovery.Member{Node: "a", Endpoints: []*discovery.Endpoint{{Ip: []byte{10, 0, 0, 1}, Port: 1}}}
	bare.ProtoReflect().SetUnknown(field(300))
	bare.Endpoints[0].ProtoReflect().SetUnknown(field(200))
	e := entryOf(t, k, m, seal.Content{Version: 1, TTL: time.Minute, Member: bare})
	_, opened, err := k.Open(e)
	if err != nil || !proto.Equal(opened, bare) {
		t.Fatalf("opened %v, %v", opened, err)
	}
	_, again, err := k.Open(entryOf(t, k, m, seal.Content{Version: 2, TTL: time.Minute, Member: opened}))
	if err != nil || !proto.Equal(again, bare) {
		t.Errorf("after a second seal %v, %v", again, err)
	}
	e.ProtoReflect().SetUnknown(field(limit.DiscoveryUnknown - 4))
	if _, err := seal.Verify(k.Cluster(), k.Verifier(), e); err != nil {
		t.Error(err)
	}
	e.ProtoReflect().SetUnknown(field(limit.DiscoveryUnknown))
	_, err = seal.Verify(k.Cluster(), k.Verifier(), e)
	refused(t, err, fault.CodeEntryInvalid, "not known")
	p, err := seal.Prove(k, nil, make([]byte, seal.NonceSize), "")
	if err != nil {
		t.Fatal(err)
	}
	p.ProtoReflect().SetUnknown(field(limit.DiscoveryUnknown))
	_, err = seal.VerifyProof(make([]byte, seal.NonceSize), p)
	refused(t, err, fault.CodeEntryInvalid, "not known")
}
