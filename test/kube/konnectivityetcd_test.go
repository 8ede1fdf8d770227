// SPDX-License-Identifier: Apache-2.0

//go:build kube

package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/kube/rig"
)

// etcdCost is what a kube-apiserver takes for objects, each of which it reads from etcd and writes there.
type etcdCost struct {
	read, write time.Duration // median of one after the other
	rate        float64       // writes per second, 16 at once
}

func (c etcdCost) String() string {
	return fmt.Sprintf("read %.1f ms, write %.1f ms, %.0f writes/s by 16 at once",
		c.read.Seconds()*1000, c.write.Seconds()*1000, c.rate)
}

// measureEtcd reads and writes objects.
func (k *konnectivity) measureEtcd(t *testing.T) (c etcdCost) {
	t.Helper()
	const times, writers = 150, 16
	ctx, client := k.within(t, 2*time.Minute), k.HTTP()
	defer client.CloseIdleConnections()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range writers {
		_, err := k.send(ctx, client, http.MethodPut, "/api/v1/namespaces/default/configmaps/"+costName(i), costBody(i, "new"))
		if err != nil { // it is not there yet
			_, err = k.send(ctx, client, http.MethodPost, "/api/v1/namespaces/default/configmaps", costBody(i, "new"))
		}
		must(err)
	}
	read, write := make([]time.Duration, times), make([]time.Duration, times)
	for i := range times {
		begin := time.Now()
		_, err := k.send(ctx, client, http.MethodGet, "/api/v1/namespaces/default/configmaps/"+costName(0), nil)
		must(err)
		read[i], begin = time.Since(begin), time.Now()
		must(k.rewrite(ctx, client, 0, fmt.Sprint(i)))
		write[i] = time.Since(begin)
	}
	slices.Sort(read)
	slices.Sort(write)
	c.read, c.write = read[times/2], write[times/2]
	begin, failed := time.Now(), make(chan error, writers)
	for w := range writers {
		go func() {
			for i := range times / 3 {
				if err := k.rewrite(ctx, client, w, fmt.Sprint("at once ", i)); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range writers {
		must(<-failed)
	}
	c.rate = float64(writers*(times/3)) / time.Since(begin).Seconds()
	return c
}

func costName(i int) string { return fmt.Sprintf("cost-%d", i) }

func costBody(i int, value string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"is":%q,"more":%q}}`,
		costName(i), value, strings.Repeat("x", 1000))
}

func (k *konnectivity) rewrite(ctx context.Context, client *http.Client, i int, value string) error {
	_, err := k.send(ctx, client, http.MethodPut, "/api/v1/namespaces/default/configmaps/"+costName(i), costBody(i, value))
	return err
}

// etcdDirectly is the cost without an egress.
func (k *konnectivity) etcdDirectly(t *testing.T) { k.direct = k.measureEtcd(t) }

// connect runs the matrix with HTTP CONNECT, in which kube-apiserver reaches etcd by an egress too.
func (k *konnectivity) connect(t *testing.T) {
	k.serve(t, rig.Tombolos, append(kamajiServer(t), "--mode=http-connect"))
	k.agents(t, "2")
	if err := k.StartEtcdEgress(k.ctx); err != nil {
		t.Fatal(err)
	}
	k.useEgress(t, rig.KonnectivityConnect)
	k.cases(t, rig.KonnectivityConnect)
}

// etcdThrough is the cost with it.
func (k *konnectivity) etcdThrough(t *testing.T) {
	n, err := k.EtcdConnections(k.ctx)
	if err != nil || n == "" || n == "0" {
		t.Fatalf("kube-apiserver has %q connections to etcd through the egress: %v", n, err)
	}
	through := k.measureEtcd(t)
	t.Attr("figure", fmt.Sprintf("etcd directly: %s; through the egress: %s", k.direct, through))
}
