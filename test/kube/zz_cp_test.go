//go:build kube

package kube_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/kube/rig"
)

func TestZCopy(t *testing.T) {
	ctx := context.Background()
	r, err := rig.New(ctx, rig.Options{Minor: os.Getenv("TOMBOLO_KUBE_VERSION"), Progress: func(line string) { t.Log(line) }})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.StartHub(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := r.StartCluster(ctx, "c1", rig.Direct)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.DeployWorkload(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.DeployAgent(ctx); err != nil {
		t.Fatal(err)
	}
	x := &cluster{Cluster: c, rig: r, ctx: ctx}
	dir := t.TempDir()
	data, _ := noise(t, 100_000_000)
	there, back := filepath.Join(dir, "there"), filepath.Join(dir, "back")
	os.WriteFile(there, data, 0o600)
	c.Partition(ctx, false)
	if _, err := c.Kubectl(ctx, "cp", there, "shell:/tmp/big"); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []rig.Mode{rig.GRPCUDS, rig.Direct, rig.GRPCUDS} {
		c.Partition(ctx, mode != rig.Direct)
		if err := c.UseEgress(ctx, mode); err != nil {
			t.Fatal(err)
		}
		bad, begin := 0, time.Now()
		const n = 20
		for i := range n {
			os.Remove(back)
			_, err := c.Kubectl(x.within(t, time.Minute), "cp", "shell:/tmp/big", back)
			got, _ := os.ReadFile(back)
			if err != nil || !bytes.Equal(got, data) {
				bad++
				t.Logf("%s %d: %d bytes, %v", mode, i, len(got), err)
			}
		}
		t.Logf("%s: %d of %d bad, %.1fs", mode, bad, n, time.Since(begin).Seconds())
		if bad > 0 {
			x.explain(t)
		}
	}
}
