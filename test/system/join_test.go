// SPDX-License-Identifier: Apache-2.0

package system

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// clock is a clock that a test moves.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) forward(d time.Duration) { c.ahead.Add(int64(d)) }

// mustEnd waits for an agent that cannot go on.
func mustEnd(t *testing.T, a *testAgent, code fault.Code) *fault.Fault {
	t.Helper()
	return wantFault(t, a.wait(t), code)
}

func TestTokenIsUsedOnce(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.token("c1").Join
	startAgent(t, agentSpec{join: line})
	second := runAgent(t, agentSpec{join: line})
	f := mustEnd(t, second, fault.CodeTokenUsed)
	if !strings.Contains(f.Next, "tombolo token create --cluster c1") {
		t.Errorf("no next step: %q", f.Next)
	}
	if n := h.connected("c1"); n != 1 {
		t.Errorf("%d agents are connected", n)
	}
}

func TestTokenOfSeveralUses(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.tokenWith("c1", time.Hour, 3).Join
	for range 3 {
		startAgent(t, agentSpec{join: line})
	}
	mustEnd(t, runAgent(t, agentSpec{join: line}), fault.CodeTokenUsed)
	names := map[string]bool{}
	for _, a := range h.status("c1").Agents {
		names[a.ID] = true
	}
	if len(names) != 3 {
		t.Errorf("three replicas are %d agents: %v", len(names), names)
	}
}

func TestTwoJoinsRaceForOneUse(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.token("c1").Join
	const racers = 4
	var won, lost atomic.Int32
	var wg sync.WaitGroup
	for range racers {
		a := runAgent(t, agentSpec{join: line})
		wg.Go(func() {
			for !a.Ready() {
				select {
				case <-a.done:
					if fault.Has(a.err, fault.CodeTokenUsed) {
						lost.Add(1)
					}
					return
				case <-time.After(5 * time.Millisecond):
				}
			}
			won.Add(1)
		})
	}
	wg.Wait()
	if won.Load() != 1 || lost.Load() != racers-1 {
		t.Errorf("%d won and %d were told that the token is used, of %d", won.Load(), lost.Load(), racers)
	}
}

func TestTokenThatRanOut(t *testing.T) {
	var c clock
	h := startHub(t, hubSpec{now: c.now})
	line := h.tokenWith("c1", time.Minute, 1).Join
	c.forward(time.Minute + time.Second)
	mustEnd(t, runAgent(t, agentSpec{join: line, now: c.now}), fault.CodeTokenExpired)
}

func TestTokenThatIsUnknown(t *testing.T) {
	h := startHub(t, hubSpec{})
	tok := h.token("c1")
	damaged := strings.Replace(tok.Join, "://"+tok.ID, "://"+strings.Repeat("a", len(tok.ID)), 1)
	mustEnd(t, runAgent(t, agentSpec{join: damaged}), fault.CodeTokenUnknown)
	// A wrong secret for a known id is told apart by nothing.
	j, err := trust.ParseJoin(tok.Join)
	if err != nil {
		t.Fatal(err)
	}
	j.Secret = strings.Repeat("b", len(j.Secret))
	mustEnd(t, runAgent(t, agentSpec{join: j.String()}), fault.CodeTokenUnknown)
	var none struct{}
	h.call("DELETE", "/v1/tokens/"+tok.ID, nil, &none)
	mustEnd(t, runAgent(t, agentSpec{join: tok.Join}), fault.CodeTokenUnknown)
}

// A hub with another CA is not shown the token.
func TestForeignHubNeverSeesTheToken(t *testing.T) {
	h, foreign := startHub(t, hubSpec{}), startHub(t, hubSpec{})
	tok := h.token("c1")
	j, err := trust.ParseJoin(tok.Join)
	if err != nil {
		t.Fatal(err)
	}
	j.Hubs = []string{foreign.listen}
	mustEnd(t, runAgent(t, agentSpec{join: j.String()}), fault.CodeCAMismatch)
	for _, m := range mustGather(t, foreign.reg) {
		if m.GetName() == "tombolo_hub_joins_total" {
			t.Errorf("the foreign hub got a request: %v", m)
		}
	}
	// The token is still good where it belongs.
	startAgent(t, agentSpec{join: tok.Join})
}

func TestJoinLineIsDamaged(t *testing.T) {
	for name, line := range map[string]string{
		"empty scheme": "join me", "no pin": "tombolo://abcdefgh." + strings.Repeat("a", 32) + "@h:1/c1/",
		"cut off": "tombolo://abcdefgh." + strings.Repeat("a", 20),
	} {
		a := runAgent(t, agentSpec{join: line})
		f := mustEnd(t, a, fault.CodeJoinLine)
		if strings.Contains(f.Explain(), "aaaaaaaa") {
			t.Errorf("%s: the error shows the secret: %s", name, f.Explain())
		}
	}
	f := mustEnd(t, runAgent(t, agentSpec{}), fault.CodeJoinLine)
	if !strings.Contains(f.Next, "tombolo token create") {
		t.Errorf("without a line: %q", f.Next)
	}
}

// The same command run again uses what is stored; the key file stays private.
func TestSameLineAgainUsesTheStoredIdentity(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.token("c1").Join
	a := startAgent(t, agentSpec{join: line})
	name := h.status("c1").Agents[0].ID
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(a.dir, "identity.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("identity file: %v, %v", info, err)
	}
	if dir, err := os.Stat(a.dir); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("state directory: %v, %v", dir, err)
	}
	startAgent(t, agentSpec{join: line, dir: a.dir})
	runtest.Eventually(t, "the same agent is back", func() bool {
		agents := h.status("c1").Agents
		return len(agents) == 1 && agents[0].ID == name && agents[0].Connected
	})
}

// A join whose answer was lost is repeated with the same key and the same line.
func TestLostAnswerOfAJoinIsRepeated(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.token("c1").Join
	a := startAgent(t, agentSpec{join: line})
	a.stop()
	// As if the agent had died between the hub's answer and its own disk.
	path := filepath.Join(a.dir, "identity.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var stored map[string]any
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	delete(stored, "certificate")
	delete(stored, "ca")
	if data, err = json.Marshal(stored); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	startAgent(t, agentSpec{join: line, dir: a.dir})
	if n := len(h.status("c1").Agents); n != 1 {
		t.Errorf("one agent became %d", n)
	}
}

func TestLineForAnotherClusterOrHubIsRefused(t *testing.T) {
	h, other := startHub(t, hubSpec{}), startHub(t, hubSpec{})
	a := startAgent(t, agentSpec{join: h.token("c1").Join})
	a.stop()
	for _, line := range []string{h.token("c2").Join, other.token("c1").Join} {
		f := mustEnd(t, runAgent(t, agentSpec{join: line, dir: a.dir}), fault.CodeJoinLine)
		if !strings.Contains(f.Next, "--state-dir") || !strings.Contains(f.Why, "c1") {
			t.Errorf("unclear: %s", f.Explain())
		}
	}
}

// An agent whose hub was set up anew says so, and goes on trying.
func TestHubWithAnotherCA(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.token("c1").Join
	a := startAgent(t, agentSpec{join: line})
	a.stop()
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	startHub(t, hubSpec{listen: h.listen})
	again := runAgent(t, agentSpec{join: line, dir: a.dir})
	runtest.Eventually(t, "the agent reports the foreign CA", func() bool {
		for _, r := range again.log.records("not connected") {
			if r["code"] == string(fault.CodeCAMismatch) {
				return true
			}
		}
		return false
	})
	if again.Ready() {
		t.Error("the agent trusts a hub with another CA")
	}
}

func TestJoinRequestThatIsNone(t *testing.T) {
	h := startHub(t, hubSpec{})
	tok := h.token("c1")
	j, err := trust.ParseJoin(tok.Join)
	if err != nil {
		t.Fatal(err)
	}
	cfg := anyHub(nil, trust.ALPNJoin)
	for name, c := range map[string]struct {
		body any
		code fault.Code
	}{
		"no CSR":       {admin.JoinRequest{TokenID: j.TokenID, Secret: j.Secret}, fault.CodeRequest},
		"CSR of junk":  {admin.JoinRequest{TokenID: j.TokenID, Secret: j.Secret, CSR: "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"}, fault.CodeRequest},
		"unknown keys": {map[string]string{"tokenID": "x", "role": "operator"}, fault.CodeRequest},
		"an array":     {[]int{1, 2}, fault.CodeRequest},
		"too large":    {admin.JoinRequest{CSR: strings.Repeat("x", limit.JoinBody)}, fault.CodeRequest},
	} {
		_, err := postJoin(runtest.Within(t), h.listen, "/v1/join", c.body, cfg)
		if !fault.Has(err, c.code) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = postJoin(runtest.Within(t), h.listen, "/v1/renew", admin.RenewRequest{CSR: "x"}, cfg)
	wantFault(t, err, fault.CodeCertInvalid)
	startAgent(t, agentSpec{join: tok.Join}) // no use was consumed
}

// While no hub answers the agent goes on trying, and probes say why it is not ready.
func TestJoinWaitsForTheHub(t *testing.T) {
	h := startHub(t, hubSpec{})
	line := h.token("c1").Join
	h.stop()
	a := runAgent(t, agentSpec{join: line})
	runtest.Eventually(t, "the agent has tried", func() bool { return len(a.log.records("cannot join yet")) > 0 })
	status, body := httpGet(t, "http://"+a.health+"/readyz")
	if status != 503 || !strings.Contains(body, string(fault.CodeHubAway)) {
		t.Errorf("readyz: %d %q", status, body)
	}
	if status, _ := httpGet(t, "http://"+a.health+"/livez"); status != 200 {
		t.Errorf("livez: %d", status)
	}
	startHub(t, hubSpec{dir: h.dir, listen: h.listen})
	runtest.Eventually(t, "the agent has joined", a.Ready)
	if status, _ := httpGet(t, "http://"+a.health+"/readyz"); status != 200 {
		t.Errorf("readyz: %d", status)
	}
}

// A black hole as hub is given up, and the stop of an agent does not wait for it.
func TestStopWhileJoining(t *testing.T) {
	h := startHub(t, hubSpec{})
	j, err := trust.ParseJoin(h.token("c1").Join)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0") // accepts, by the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	j.Hubs = []string{ln.Addr().String()}
	a := runAgent(t, agentSpec{join: j.String()})
	runtest.Eventually(t, "the agent is alive", func() bool {
		conn, err := net.Dial("tcp", a.health)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	a.soft()
	if err := a.wait(t); err != nil {
		t.Errorf("stop: %v", err)
	}
}
