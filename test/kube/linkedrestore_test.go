// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
)

// restore: the host cluster loses its kinds with all objects, and gets them back as docs/howto/link-clusters.md says. A
// Service of one member is asked by a pod of another one all the time.
func (w *linkedWorld) restore(t *testing.T) {
	host, begin := w.all[0], time.Now()
	backup := host.kubectl(t, "get", "clusters.tombolo.dev,clusternodes", "-o", "yaml")
	end := w.askAll(t)
	host.kubectl(t, "delete", "crd", "clusters.tombolo.dev", "clusternodes.tombolo.dev", "nodeconfigs.tombolo.dev")
	w.host(t)
	host.kubectl(t, "-n", "tombolo-system", "scale", "deployment", "tombolo-controller", "--replicas", "0")
	if out, err := host.KubectlInput(t.Context(), strings.NewReader(backup), "create", "-f", "-"); err != nil &&
		!membersFirst(err.Error()+out) {
		t.Fatalf("%v: %s", err, out)
	}
	host.kubectl(t, "-n", "tombolo-system", "scale", "deployment", "tombolo-controller", "--replicas", "1")
	made := host.kubectl(t, "get", "clusters.tombolo.dev", "-o",
		"jsonpath={range .items[*]}{.metadata.creationTimestamp} True {end}")
	for _, c := range w.all[1:] {
		runtest.Eventually(t, c.Name+" has what was restored, as it is judged", func() bool {
			out, _ := c.Kubectl(t.Context(), "get", "clusters.tombolo.dev", "-o", `jsonpath={range .items[*]}`+
				`{.metadata.annotations.tombolo\.dev/created} {.status.conditions[?(@.type=="RangesAccepted")].status} {end}`)
			return strings.TrimSpace(out) == made
		})
	}
	end()
	t.Logf("restored after %v", time.Since(begin).Round(100*time.Millisecond))
	w.flow(t) // the host cluster has its own links again
}

// membersFirst says whether all that kubectl could not create are ClusterNodes that their members have written meanwhile.
func membersFirst(said string) bool {
	const failed = "Error from server"
	_, rest, some := strings.Cut(said, failed)
	for _, one := range strings.Split(rest, failed) {
		some = some && strings.HasPrefix(one, " (AlreadyExists)") && strings.Contains(one, "clusternodes.tombolo.dev")
	}
	return some
}

// askAll has a pod of the second cluster ask a Service of the third one without a pause, until end is called. One answer
// that is late is none that is lost.
func (w *linkedWorld) askAll(t *testing.T) (end func()) {
	t.Helper()
	from, to := w.all[1], w.all[2]
	service := strings.TrimSpace(to.kubectl(t, "get", "service", "backend", "-o", "jsonpath={.spec.clusterIP}"))
	service = strings.Replace(service, "10.96.", "10.82.", 1) + " 80"
	ctx, stop := context.WithCancel(t.Context())
	asked := 0
	var g sync.WaitGroup
	g.Go(func() {
		for lost := 0; ctx.Err() == nil; asked++ {
			err := from.asks(ctx, service, to.Name+" echoes linked\n")
			if lost++; err == nil {
				lost = 0
			} else if lost > 1 && ctx.Err() == nil {
				t.Errorf("the question %d in vain: %v", asked, err)
			}
		}
	})
	return func() {
		stop()
		g.Wait()
		t.Logf("%d questions", asked)
	}
}

// relink has the clusters get another secret of the mesh: all are unlinked, and linked anew.
func (w *linkedWorld) relink(t *testing.T) {
	host, begin := w.all[0], time.Now()
	secret := func(c *cluster) string {
		return c.kubectl(t, "-n", "tombolo-link", "get", "secret", "tombolo-mesh-secret", "-o", "jsonpath={.data.secret}")
	}
	old := secret(host)
	for _, c := range slices.Backward(w.all) {
		out, err := c.link(t.Context(), "unjoin", c.Name, "--host-kubeconfig", host.AdminKubeconfig())
		t.Logf("%v\n%s", err, out)
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("unlinked after %v", time.Since(begin).Round(100*time.Millisecond))
	for i := range w.all {
		w.line(t, i)
	}
	var g sync.WaitGroup
	for i, c := range w.all {
		args := w.joinArgs(t, i)
		g.Go(func() {
			if out, err := c.link(t.Context(), args...); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	g.Wait()
	for _, c := range w.all {
		if now := secret(c); now == old || now != secret(host) {
			t.Errorf("%s has the secret that it had, or another one than the others", c.Name)
		}
	}
	w.flow(t)
	t.Logf("unlinked, and linked anew, after %v", time.Since(begin).Round(100*time.Millisecond))
}
