// SPDX-License-Identifier: Apache-2.0

//go:build kube

package access_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// TestAnEditAmongManyClusters counts what an edit writes. TOMBOLO_ACCESS_CLUSTERS is how many clusters there are, with
// 60 ranges each; it prints how long edits take.
func TestAnEditAmongManyClusters(t *testing.T) {
	many, edits := 40, 3
	if text := os.Getenv("TOMBOLO_ACCESS_CLUSTERS"); text != "" {
		var err error
		if many, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		edits = 30
	}
	x := start(t, fmt.Sprintf(gatewayConfig, istio.Auto))
	ranges := func(cluster, edit int) (out []string) {
		for i := range 59 {
			out = append(out, fmt.Sprintf("10.%d.%d.0/24", cluster%256, 4*i))
		}
		return append(out, fmt.Sprintf("192.0.2.%d", edit))
	}
	list := func(cluster, edit int) string {
		return fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nmetadata: {name: c%d}\nrules:\n"+
			"- {name: list, clusters: [c%d], flows: [api, vpn], sources: [%s], allow: ['*']}\n---\n",
			cluster, cluster, strings.Join(ranges(cluster, edit), ", "))
	}
	var all strings.Builder
	all.WriteString(shared + "---\n")
	for i := range many {
		all.WriteString(cluster(fmt.Sprintf("c%d", i)) + list(i, 0))
	}
	x.apply(t, all.String())
	x.replica(t)
	for i := range many {
		x.settled(t, fmt.Sprintf("c%d", i))
	}
	if st := x.settled(t, "c1"); len(st.Access) != 2 || len(st.Access[0].Entries) != 60 || st.Covered != "2/2" {
		t.Errorf("%s, %d flows", st.Covered, len(st.Access))
	}
	before := x.versions(t)
	var took []time.Duration
	for edit := range edits {
		c := edit * 7 % many
		name := fmt.Sprintf("EnvoyFilter/istio-ingress/tombolo-api-c%d", c)
		text := fmt.Sprintf("192.0.2.%d", edit+1)
		watch := x.written(t, fmt.Sprintf("tombolo-api-c%d", c), text)
		begin := time.Now()
		x.apply(t, list(c, edit+1))
		stored := time.Now()
		at := <-watch
		took = append(took, at.Sub(begin))
		t.Logf("edit %d: stored after %v, written after %v", edit, stored.Sub(begin), at.Sub(begin))
		x.settled(t, fmt.Sprintf("c%d", c))
		after := x.versions(t)
		got := slices.DeleteFunc(changed(before, after), func(s string) bool { return strings.HasPrefix(s, "ConfigMap/") })
		if !slices.Equal(got, []string{name}) {
			t.Errorf("an edit of c%d wrote %q", c, got)
		}
		before = after
	}
	slices.Sort(took)
	t.Logf("%d clusters with 60 ranges: from edit to written median %v, slowest of %d %v", many, took[len(took)/2], len(took),
		took[len(took)-1])
}

// written says when an EnvoyFilter has a text.
func (x *world) written(t *testing.T, name, text string) <-chan time.Time {
	t.Helper()
	out := make(chan time.Time, 1)
	seen := x.watch(t, "envoyfilter", "-n", "istio-ingress", name)
	go func() {
		for line := range seen {
			if strings.Contains(line, `"`+text+`"`) {
				out <- time.Now()
				return
			}
		}
	}()
	return out
}
