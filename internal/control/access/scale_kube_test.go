// SPDX-License-Identifier: Apache-2.0

//go:build kube

package access_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/istio"
)

// TestAnEditAmongManyClusters counts what an edit writes, with two replicas that are asked by webhooks.
// TOMBOLO_ACCESS_CLUSTERS is how many clusters there are, with 60 ranges and an EnvoyFilter of somebody else each; it
// reports how long it takes from a stored edit until all is written.
func TestAnEditAmongManyClusters(t *testing.T) {
	many, rounds := 40, 3
	if text := os.Getenv("TOMBOLO_ACCESS_CLUSTERS"); text != "" {
		var err error
		if many, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
		rounds = 30
	}
	x := start(t, fmt.Sprintf(gatewayConfig, istio.Auto))
	list := func(cluster, edit int) string {
		var ranges []string
		for i := range 59 {
			ranges = append(ranges, fmt.Sprintf("10.%d.%d.0/24", cluster%256, 4*i))
		}
		return fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: AccessPolicy\nmetadata: {name: c%d}\nrules:\n"+
			"- {name: list, clusters: [c%d], flows: [api, vpn], sources: [%s], allow: ['*']}\n---\n",
			cluster, cluster, strings.Join(append(ranges, editOf(edit)), ", "))
	}
	x.replica(t)
	x.replica(t)
	x.webhooks(t)
	var objects, lists, filters strings.Builder
	objects.WriteString(shared + "---\n")
	for i := range many {
		objects.WriteString(cluster(fmt.Sprintf("c%d", i)))
		lists.WriteString(list(i, 0))
		filters.WriteString(fmt.Sprintf(proxyFilter, fmt.Sprintf("c%d", i), "1") + "---\n")
	}
	x.apply(t, objects.String())
	x.apply(t, lists.String())
	x.apply(t, filters.String())
	x.kube(t, "wait", "accesspolicies", "--all", "--for=condition=Covered", "--timeout=10m")
	x.settled(t, fmt.Sprintf("c%d", many-1))
	if st := x.settled(t, "c1"); len(st.Access) != 2 || len(st.Access[0].Entries) != 60 || st.Covered != "3/3" {
		t.Errorf("%s, %d flows", st.Covered, len(st.Access))
	}

	stored := x.sightings(t, "rules", "accesspolicies")
	written := x.sightings(t, "spec", "envoyfilters", "-n", "istio-ingress")
	before := x.versions(t)
	var took []time.Duration
	for round := range rounds {
		var edits strings.Builder
		var asked, names []string
		var wanted [][2]string
		for i := range []int{1, 1, 10}[round%3] { // some at once
			c, edit := (round*7+i*3)%many, round*10+i+1
			edits.WriteString(list(c, edit))
			asked = append(asked, fmt.Sprintf("c%d %s", c, editOf(edit)))
			wanted = append(wanted, [2]string{fmt.Sprintf("tombolo-api-c%d %s", c, editOf(edit)),
				fmt.Sprintf("shoot--p--c%d %s", c, editOf(edit))})
			names = append(names, fmt.Sprintf("EnvoyFilter/istio-ingress/tombolo-api-c%d", c),
				fmt.Sprintf("EnvoyFilter/istio-ingress/shoot--p--c%d", c))
		}
		x.apply(t, edits.String())
		for i, both := range wanted {
			begin := stored.at(t, asked[i])
			took = append(took, max(written.at(t, both[0]).Sub(begin), written.at(t, both[1]).Sub(begin)))
		}
		if round%3 == 2 {
			x.apply(t, filters.String()) // their author's version again
		}
		after := x.versions(t)
		got := slices.DeleteFunc(changed(before, after), func(s string) bool { return strings.HasPrefix(s, "ConfigMap/") })
		slices.Sort(names)
		if !slices.Equal(got, names) {
			t.Errorf("edits of %q wrote %q", names, got)
		}
		before = after
	}
	slices.Sort(took)
	t.Attr("figure", fmt.Sprintf("%d clusters with 60 ranges, %d edits until written: median %v, p99 %v", many, len(took),
		took[len(took)/2].Round(time.Millisecond), took[(len(took)*99+99)/100-1].Round(time.Millisecond)))
}

// editOf is the address that an edit puts into a list.
func editOf(edit int) string { return fmt.Sprintf("192.0.%d.%d", 2+edit/200, edit%200) }

// sightings say when objects had an address for the first time.
type sightings struct {
	mu  sync.Mutex
	all map[string]time.Time
}

// sightings follow a field of objects.
func (x *world) sightings(t *testing.T, field string, of ...string) *sightings {
	t.Helper()
	s := &sightings{all: map[string]time.Time{}}
	lines := x.watch(t, append([]string{`-o=jsonpath={.metadata.name} {.` + field + `}{"\n"}`}, of...)...)
	go func() {
		for line := range lines {
			name, spec, _ := strings.Cut(line, " ")
			now := time.Now()
			s.mu.Lock()
			for _, part := range strings.Split(spec, `"192.0.`)[1:] {
				address, _, _ := strings.Cut(part, `"`)
				if key := name + " 192.0." + address; s.all[key].IsZero() {
					s.all[key] = now
				}
			}
			s.mu.Unlock()
		}
	}()
	return s
}

// at waits for one.
func (s *sightings) at(t *testing.T, key string) (at time.Time) {
	t.Helper()
	eventually(t, key, func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		if at = s.all[key]; at.IsZero() {
			return "it is not written"
		}
		return ""
	})
	return at
}
