// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/audit"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/test/kube/rig"
	"github.com/tombolo-io/tombolo/test/lab"
)

const officeOnly = `rules:
- {name: office, clusters: [c1, c2], flows: [api], sources: [` + rig.OfficeAddress + `], allow: ["*"]}
`

// edge puts both kube-apiservers behind one port and follows a log through it while tenants come, change and go.
func (x *cluster) edge(t *testing.T) {
	if x.other == nil {
		t.Fatal("there is no second cluster")
	}
	e, err := x.rig.StartEdge(x.ctx, rig.EdgeOptions{Name: "edge", Address: rig.EdgeAddress, Rules: officeOnly})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("--- end of the edge's log\n%s", e.Log())
			x.explain(t)
		}
	})
	b := &behind{Edge: e, x: x}
	b.fails(t, x, "unrecognized name") // no tenant yet
	b.must(t, e.Serve(x.Cluster))
	b.works(t, x)
	f := b.follow(t)
	t.Run("tenants while a log is followed", func(t *testing.T) { b.tenants(t, f) })
	t.Run("exec", b.exec)
	t.Run("refused", b.refused)
	f.goesOn(t)
}

// behind is both clusters behind the edge.
type behind struct {
	*rig.Edge
	x *cluster
}

func (b *behind) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// works waits until the cluster answers, and no other: its pod says its name.
func (b *behind) works(t *testing.T, c *cluster) {
	t.Helper()
	path := "/api/v1/namespaces/default/pods/backend:8080/proxy/echo?word=edge"
	want := c.Name + " echoes edge\n"
	var got string
	var err error
	defer func() {
		if got != want {
			t.Logf("%q, %v", got, err)
		}
	}()
	runtest.Eventually(t, c.Name+" answers through the edge", func() bool {
		got, err = b.Kubectl(c.within(t, time.Minute), c.Cluster, "get", "--raw", path)
		return got == want
	})
}

// fails waits until the cluster is not reached, for this reason.
func (b *behind) fails(t *testing.T, c *cluster, reason string) {
	t.Helper()
	var err error
	defer func() {
		if t.Failed() {
			t.Log(err)
		}
	}()
	runtest.Eventually(t, c.Name+" fails through the edge: "+reason, func() bool {
		_, err = b.Kubectl(c.within(t, time.Minute), c.Cluster, "get", "nodes")
		return err != nil && strings.Contains(err.Error(), reason)
	})
}

// followed is a `kubectl logs -f` through the edge.
type followed struct {
	out     *lines
	session *lab.Process
	last    int
}

func (b *behind) follow(t *testing.T) *followed {
	f := &followed{out: newLines()}
	var err error
	f.session, err = b.StartKubectl(b.x.within(t, 3*time.Minute), f.out, b.x.Cluster, "logs", "-f", "writer", "--tail=1")
	b.must(t, err)
	t.Cleanup(func() { f.session.Stop(0) })
	f.last = f.out.number(t, f.session)
	return f
}

// goesOn reads all that has come and five lines more, none lost or doubled.
func (f *followed) goesOn(t *testing.T) {
	t.Helper()
	for range len(f.out.full) + 5 {
		if n := f.out.number(t, f.session); n != f.last+1 {
			t.Fatalf("line %d follows line %d", n, f.last)
		}
		f.last++
	}
}

func (b *behind) tenants(t *testing.T, f *followed) {
	x, y := b.x, b.x.other
	b.must(t, b.Serve(y.Cluster))
	b.works(t, y)
	b.works(t, x)
	f.goesOn(t)
	for i := range 20 {
		name := fmt.Sprintf("other%d", i)
		b.must(t, b.Tenant(name, name+".test", "192.0.2.1:6443"))
		if i%2 == 0 {
			b.must(t, b.Remove(name))
		}
	}
	f.goesOn(t)
	// A client knows by kube-apiserver's own certificate that it was led astray.
	b.must(t, b.Tenant(y.Name, y.EdgeName(), x.APIServer()))
	b.fails(t, y, "failed to verify certificate")
	b.must(t, b.Tenant(x.Name, x.EdgeName(), y.APIServer()))
	b.fails(t, x, "failed to verify certificate")
	f.goesOn(t) // where it began
	b.must(t, b.Remove(y.Name))
	b.fails(t, y, "unrecognized name")
	b.must(t, b.Remove(x.Name))
	b.fails(t, x, "unrecognized name")
	f.goesOn(t)
	b.must(t, b.Serve(x.Cluster))
	b.works(t, x)
	f.goesOn(t)
}

func (b *behind) exec(t *testing.T) {
	in, sum := noise(t, 4<<20)
	args := []string{"exec", "-i", "shell", "--", "sha256sum"}
	out, err := b.KubectlInput(b.x.within(t, time.Minute), bytes.NewReader(in), b.x.Cluster, args...)
	if got, _, _ := strings.Cut(out, " "); err != nil || got != sum {
		t.Errorf("the pod read other bytes than were sent: sha256 %s, %v; want %s", got, err, sum)
	}
}

// refused: another source is refused before a byte reaches kube-apiserver, and the record says by which policy.
func (b *behind) refused(t *testing.T) {
	_, err := b.KubectlElsewhere(b.x.within(t, time.Minute), b.x.Cluster, "get", "nodes")
	if err == nil || !strings.Contains(err.Error(), "access denied") {
		t.Errorf("kubectl from a source that no rule allows: %v", err)
	}
	runtest.Eventually(t, "the record of the refusal", func() bool {
		records, err := b.Records()
		b.must(t, err)
		for _, r := range records {
			if r.Code != "policy_denied" {
				continue
			}
			if r.Kind != audit.KindRefusal || r.Verdict != audit.Deny || r.Cluster != b.x.Name || r.Asked != b.x.EdgeName() ||
				!strings.HasPrefix(r.Source, rig.HubAddress+":") || r.Policy == "" ||
				r.Reason != "no rule allows "+rig.HubAddress+" for c1/api" {
				t.Errorf("%+v", r)
			}
			t.Logf("%s was refused: %s", r.Source, r.Reason)
			return true
		}
		return false
	})
}
