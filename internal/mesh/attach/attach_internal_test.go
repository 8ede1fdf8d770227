// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/mesh/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// identity is one that a CA of its own issued.
func identity(t *testing.T, role id.Role, name, token string, life time.Duration) *enrol.Identity {
	t.Helper()
	ca, err := trust.NewAuthority("example.org", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	cluster, err1 := id.ParseCluster("c1")
	key, err2 := trust.NewKey()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	cert, err := ca.Issue(trust.Request{Identity: id.Identity{Role: role, Cluster: cluster, Name: name}, Key: key.Public(), Life: life}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	me := &enrol.Identity{Key: key, Hubs: []string{"stored:1"}, Token: token}
	if err := me.SetCertificates(string(trust.EncodeCertificate(cert.Raw)), string(ca.CertificatePEM())); err != nil {
		t.Fatal(err)
	}
	return me
}

// lineFor is a join line with which the identity could have come.
func lineFor(t *testing.T, me *enrol.Identity, token string) *trust.Join {
	t.Helper()
	line, err := trust.ParseJoin(fmt.Sprintf("tombolo://%s.%s@hub:1/%s/%s", token, strings.Repeat("a", 32), me.Who.Cluster, trust.Pin(me.CA)))
	if err != nil {
		t.Fatal(err)
	}
	return &line
}

func TestWhatIsDoneAboutTheCertificate(t *testing.T) {
	joined := identity(t, id.RoleNode, "a", "aaaaaaaa", time.Hour)
	same, other, key := lineFor(t, joined, "aaaaaaaa"), lineFor(t, joined, "bbbbbbbb"), &enrol.Identity{Key: joined.Key}
	for _, c := range []struct {
		me     *enrol.Identity
		line   *trust.Join
		barred bool
		want   task
	}{
		{nil, nil, false, idle}, {key, nil, false, idle}, {key, nil, true, idle},
		{nil, same, false, join}, {key, same, false, join}, {key, same, true, join},
		{joined, nil, false, renew}, {joined, same, false, renew}, {joined, other, false, renew},
		{joined, nil, true, later}, {joined, same, true, later}, {joined, other, true, join},
	} {
		if got := next(c.me, c.line, c.barred); got != c.want {
			t.Errorf("joined %v, line %v, barred %v: %s, want %s", c.me.Joined(), c.line != nil, c.barred, got, c.want)
		}
	}
}

func TestHowLongAJoinWaits(t *testing.T) {
	for code, most := range map[fault.Code]time.Duration{
		fault.CodeHubAway: limit.BackoffMost, fault.CodeDraining: limit.BackoffMost, fault.CodeLimit: limit.BackoffMost, fault.CodeStateAccess: limit.BackoffMost,
		fault.CodeNodeTaken: limit.AttachRefused, fault.CodeCAMismatch: limit.AttachRefused, fault.CodeClockSkew: limit.AttachRefused,
	} {
		f := fault.New(code, "x")
		if first, last := pause(f, 0, 0.99), pause(f, 1000, 0.99); first > time.Second || last < most*9/10 || last > most+limit.BackoffFirst {
			t.Errorf("%s: %v at first, %v in the end", code, first, last)
		}
		if spent(code) {
			t.Errorf("%s is for good", code)
		}
	}
	for _, code := range []fault.Code{fault.CodeTokenUsed, fault.CodeTokenExpired, fault.CodeTokenUnknown, fault.CodeJoinLine} {
		if !spent(code) {
			t.Errorf("after %s the same line helps", code)
		}
	}
	for _, code := range []fault.Code{fault.CodeCertRevoked, fault.CodeCertExpired, fault.CodeNodeTaken} {
		if !final(code) {
			t.Errorf("%s can be renewed", code)
		}
	}
	for _, code := range []fault.Code{fault.CodeHubAway, fault.CodeDraining, fault.CodeClockSkew, fault.CodeCAMismatch, fault.CodeInternal} {
		if final(code) {
			t.Errorf("%s is for good", code)
		}
	}
}

// opened is a node with a stored identity; nil: none.
func opened(t *testing.T, me *enrol.Identity, cfg Config, o Options) (*Attach, error) {
	t.Helper()
	if cfg.StateDir == "" {
		cfg.StateDir = t.TempDir()
	}
	if me != nil {
		if err := me.Save(cfg.StateDir); err != nil {
			t.Fatal(err)
		}
	}
	o.Reg = prometheus.NewRegistry()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return Open(cfg, o)
}

func TestWhereTheHubsAre(t *testing.T) {
	me := identity(t, id.RoleNode, "a", "aaaaaaaa", time.Hour)
	line := lineFor(t, me, "aaaaaaaa").String()
	gone := func(string) (string, error) { return "", os.ErrNotExist }
	for name, c := range map[string]struct {
		me   *enrol.Identity
		cfg  Config
		read func(string) (string, error)
		want string
	}{
		"stored":                           {me, Config{}, nil, "[stored:1]"},
		"the line's, which are newer":      {me, Config{Join: line}, nil, "[hub:1]"},
		"configured":                       {me, Config{Join: line, Hubs: []string{"x:1", "y:2"}}, nil, "[x:1 y:2]"},
		"a line that was removed":          {me, Config{Join: "@/line"}, gone, "[stored:1]"},
		"the first line, before it joined": {nil, Config{Join: line}, nil, "[hub:1]"},
		"nowhere":                          {nil, Config{}, nil, "[]"},
		"configured, and no identity":      {nil, Config{Hubs: []string{"x:1"}}, nil, "[x:1]"},
	} {
		c.cfg.Node = "a"
		a, err := opened(t, c.me, c.cfg, Options{ReadJoin: c.read})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := fmt.Sprint(a.Addresses()); got != c.want || a.Enabled() != (c.me != nil || c.cfg.Join != "") || a.Ready() {
			t.Errorf("%s: %s, want %s; enabled %v", name, got, c.want, a.Enabled())
		}
	}
	if _, err := opened(t, nil, Config{Node: "a", Join: "@/line"}, Options{ReadJoin: gone}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a line that is needed and not there: %v", err)
	}
}

// TestNamesOfOthersAreThoseOfPolicies: rules name callers by the URI of their certificate.
func TestNamesOfOthersAreThoseOfPolicies(t *testing.T) {
	a, err := opened(t, identity(t, id.RoleNode, "a", "", time.Hour), Config{Node: "a"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]string{
		"b": "spiffe://example.org/cluster/c1/node/b", "b.example": "spiffe://example.org/cluster/c1/node/b.example",
		"": "", "b/node/a": "", "B": "", "*": "",
	} {
		if got := a.Named(node); got != want {
			t.Errorf("%q: %q, want %q", node, got, want)
		}
	}
	nobody, err := opened(t, nil, Config{Node: "a"}, Options{})
	if err != nil || nobody.Named("b") != "" {
		t.Errorf("without a certificate: %q, %v", nobody.Named("b"), err)
	}
}

// TestNoHub: without a line nothing is dialled, written or told, and it ends at once.
func TestNoHub(t *testing.T) {
	dir := t.TempDir()
	a, err := opened(t, nil, Config{StateDir: dir, Node: "Not_A_Label"}, Options{Changed: func() { t.Error("changed") }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- a.Run(ctx, relay.Handlers{}) }()
	if a.Send("h", "p", []byte{4, 0, 0, 0}) != 0 || a.Enabled() || len(a.Hubs()) != 0 || a.Cluster() != "" || len(a.Status().Hubs) != 0 {
		t.Errorf("%+v", a.Status())
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// away is a choice of a proxy that fails, and counts.
func away(asked *atomic.Int64) func(*url.URL) (*url.URL, error) {
	return func(*url.URL) (*url.URL, error) {
		asked.Add(1)
		return nil, errors.New("no proxy")
	}
}

// TestAHubThatIsAwayForLong is asked with a backoff, and the key stays one and the same.
func TestAHubThatIsAwayForLong(t *testing.T) {
	me := identity(t, id.RoleNode, "a", "aaaaaaaa", time.Hour)
	line := lineFor(t, me, "aaaaaaaa").String()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var asked atomic.Int64
		a, err := opened(t, nil, Config{StateDir: dir, Node: "a", Join: line, Proxy: away(&asked)}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx, relay.Handlers{}) }()
		time.Sleep(time.Minute)
		first, err := enrol.Load(dir)
		if err != nil || first == nil || first.Joined() {
			t.Fatalf("%v", err)
		}
		if n := asked.Load(); n < 6 || n > 40 || !fault.Has(a.Status().Fault, fault.CodeHubAway) {
			t.Errorf("asked %d times in the first minute; %+v", n, a.Status().Fault)
		}
		time.Sleep(6 * time.Hour)
		if n := asked.Load(); n < 6*240 || n > 6*1000 {
			t.Errorf("asked %d times in six hours", n)
		}
		n := asked.Load()
		a.Again()
		synctest.Wait()
		if asked.Load() == n {
			t.Error("it waits on, although it was told to try")
		}
		again, err := enrol.Load(dir)
		if err != nil || !again.Key.Public().(*ecdsa.PublicKey).Equal(first.Key.Public()) {
			t.Errorf("another key: %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestALineThatIsRefusedForGood is not tried again, also not when this machine moves, until
// there is another one; who asks for it before the start is told.
func TestALineThatIsRefusedForGood(t *testing.T) {
	me := identity(t, id.RoleNode, "a", "aaaaaaaa", time.Hour)
	line := lineFor(t, me, "aaaaaaaa").String()
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var asked atomic.Int64
			a, err := opened(t, nil, Config{Node: "a", Join: line, Proxy: away(&asked)}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Join(t.Context()); err != nil || asked.Load() != 1 {
				t.Errorf("what passes: %v after %d", err, asked.Load())
			}
			a.hubs = []string{"%:1"} // the line has it: nothing else than another line helps
			if before {
				if err := a.Join(t.Context()); !fault.Has(err, fault.CodeJoinLine) {
					t.Errorf("before the start: %v", err)
				}
			}
			refused := func() float64 {
				var m dto.Metric
				if err := a.metrics.Joins.WithLabelValues(string(fault.CodeJoinLine)).Write(&m); err != nil {
					t.Fatal(err)
				}
				return m.GetCounter().GetValue()
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- a.Run(ctx, relay.Handlers{}) }()
			for range 3 {
				time.Sleep(time.Hour)
				a.Again()
				synctest.Wait()
			}
			if refused() != 1 || asked.Load() != 1 || !fault.Has(a.Status().Fault, fault.CodeJoinLine) {
				t.Errorf("refused %v times, asked %d times; %v", refused(), asked.Load(), a.Status().Fault)
			}
			if err := a.Reload(Config{Join: line}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if asked.Load() != 2 || !fault.Has(a.Status().Fault, fault.CodeHubAway) {
				t.Errorf("after a reload: asked %d times; %v", asked.Load(), a.Status().Fault)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAHubThatSaysNothing keeps no node from its start.
func TestAHubThatSaysNothing(t *testing.T) {
	me := identity(t, id.RoleNode, "a", "aaaaaaaa", time.Hour)
	line := lineFor(t, me, "aaaaaaaa").String()
	synctest.Test(t, func(t *testing.T) {
		a, err := opened(t, nil, Config{Node: "a", Join: line, Proxy: func(*url.URL) (*url.URL, error) {
			time.Sleep(time.Hour)
			return nil, errors.New("no proxy")
		}}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := a.Join(t.Context()); err != nil || time.Since(began) > attachFirst {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		time.Sleep(2 * time.Hour) // what it asked ends
	})
}

// TestACertificateThatHasRunOut is not shown to a relay, and its renewal is tried.
func TestACertificateThatHasRunOut(t *testing.T) {
	me := identity(t, id.RoleNode, "a", "aaaaaaaa", time.Hour)
	now := func() time.Time { return time.Now().Add(48 * time.Hour) }
	a, err := opened(t, me, Config{Node: "a"}, Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.tls(); !fault.Has(err, fault.CodeCertExpired) {
		t.Errorf("%v", err)
	}
	if k := a.keeper(); !k.Due(t.Context()) {
		t.Error("it is not due")
	}
	none, err := opened(t, nil, Config{Node: "a"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.tls(); !fault.Has(err, fault.CodeCertInvalid) {
		t.Errorf("%v", err)
	}
}

// TestTheMark: each socket is handed to what marks it; where that is not permitted the
// connection is made, the status says so, and the log once.
func TestTheMark(t *testing.T) {
	target := runtest.Echo(t)
	log := &runtest.Transcript{}
	var sockets atomic.Int32
	a, err := opened(t, nil, Config{Node: "a", Mark: 0x20}, Options{
		Log:     slog.New(slog.NewTextHandler(log, nil)),
		Control: func(network, address string, c syscall.RawConn) error { sockets.Add(1); return syscall.EPERM },
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		conn, err := a.dial(t.Context(), target.Addr())
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	if f := a.Status().Mark; sockets.Load() != 3 || !fault.Has(f, fault.CodeUnsupported) || !strings.Contains(f.Explain(), "operation not permitted") {
		t.Errorf("%d sockets, %v", sockets.Load(), f)
	}
	if n := strings.Count(log.String(), "bear no mark"); n == 0 || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("the log:\n%s", log)
	}
	b, err := opened(t, nil, Config{Node: "a", Mark: 0x20}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := b.dial(t.Context(), target.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var mark int
	if err := errors.Join(raw.Control(func(fd uintptr) { mark, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_MARK) }), err); err != nil {
		t.Fatal(err)
	}
	if told := b.Status().Mark; (mark == 0x20) == (told != nil) {
		t.Errorf("the mark is %#x, the status says %v", mark, told)
	}
}

// TestNothingOfTheTokenIsShown: neither in errors nor in the state, but for its id.
func TestNothingOfTheTokenIsShown(t *testing.T) {
	me := identity(t, id.RoleNode, "a", "aaaaaaaa", time.Hour)
	line := lineFor(t, me, "aaaaaaaa").String()
	secret := strings.Repeat("a", 32)
	dir := t.TempDir()
	for _, cfg := range []Config{
		{StateDir: dir, Node: "b", Join: line}, {StateDir: dir, Node: "a", Join: line + "/x"}, {StateDir: dir, Node: "a", Join: strings.Replace(line, "/c1/", "/c2/", 1)},
		{StateDir: dir, Node: "a", Join: line, Hubs: []string{"no"}},
	} {
		if _, err := opened(t, me, cfg, Options{}); err == nil || strings.Contains(fault.From(err).Explain(), secret) {
			t.Errorf("%v", err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, enrol.File))
	if err != nil || strings.Contains(string(data), secret) || !strings.Contains(string(data), `"token": "aaaaaaaa"`) {
		t.Errorf("%v\n%s", err, data)
	}
}
