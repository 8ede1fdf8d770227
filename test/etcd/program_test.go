// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery"
	store "github.com/tombolo-io/tombolo/internal/discovery/etcd"
)

// TestBadStartsWithEtcd, of the program: each is refused with its code, its exit
// status and a next step, writes nothing into etcd, and harms no other service that
// is there.
func TestBadStartsWithEtcd(t *testing.T) {
	t.Parallel()
	bin := runtest.Program(t)
	ours, others := newAuthority(t), newAuthority(t)
	for _, a := range []*authority{ours, others} {
		a.issue(t, "client", false)
	}
	server := ours.server(t)
	wrong := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(wrong, []byte("wrong\n"), 0o600))
	right := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(right, []byte("right\n"), 0o600))
	good := store.Config{Endpoints: []string{server.URL}, Prefix: prefix + "/live", Times: patient(),
		Username: "discovery", PasswordFile: right,
		CAFile: ours.file("ca"), CertFile: ours.file("client"), KeyFile: ours.file("client-key")}
	root := server.secure(t, good)
	for key, value := range map[string]string{"/foreign/x": "theirs", "/newer/format": "tombolo discovery 2\n", "/odd/format": "something",
		"/orphans/v1/s/63/61": "a member without a marker"} {
		runtest.Eventually(t, "etcd answers", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := root.Put(ctx, prefix+"/bad"+key, value)
			return err == nil
		})
	}
	server.allow(t, good)
	live := run(t, good, discovery.NewBoard(discovery.Bounds{}))
	must(t, live.Update(t.Context(), at("1"), says("x", time.Minute)))

	with := func(edit func(*store.Config)) store.Config {
		c := good
		edit(&c)
		return c
	}
	below := func(name string) store.Config {
		return with(func(c *store.Config) { c.Prefix = prefix + "/bad/" + name })
	}
	for name, c := range map[string]struct {
		config store.Config
		exit   int
		says   []string
	}{
		"a foreign prefix":                {below("foreign"), 1, []string{"store_foreign", "/bad/foreign/x", "choose an empty prefix"}},
		"members without a marker":        {below("orphans"), 1, []string{"store_foreign"}},
		"a marker of somebody else":       {below("odd"), 1, []string{"store_foreign"}},
		"a newer version":                 {below("newer"), 1, []string{"state_newer", "format 2", "run the newer version"}},
		"a wrong password":                {with(func(c *store.Config) { c.PasswordFile = wrong }), 3, []string{"store_unavailable", "store.etcd.username and passwordFile"}},
		"a user that is not there":        {with(func(c *store.Config) { c.Username = "nobody" }), 3, []string{"store_unavailable", "store.etcd.username"}},
		"a prefix beyond the user's role": {with(func(c *store.Config) { c.Prefix = "/elsewhere" }), 3, []string{"store_unavailable", "reads and writes /elsewhere/"}},
		"another CA":                      {with(func(c *store.Config) { c.CAFile = others.file("ca") }), 3, []string{"store_unavailable", "certificate"}},
		"a certificate of another CA": {with(func(c *store.Config) {
			c.CertFile, c.KeyFile = others.file("client"), others.file("client-key")
		}), 3, []string{"store_unavailable", "certificate"}},
		"no certificate": {with(func(c *store.Config) { c.CertFile, c.KeyFile = "", "" }), 3, []string{"store_unavailable", "certificate"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := everything(t, server, good)
			exit, text := refusedStart(t, bin, c.config)
			if exit != c.exit || !strings.Contains(text, "\nhint: ") {
				t.Errorf("exit %d, want %d with a hint:\n%s", exit, c.exit, text)
			}
			for _, say := range c.says {
				if !strings.Contains(text, say) {
					t.Errorf("it does not say %q:\n%s", say, text)
				}
			}
			if strings.Contains(text, "wrong\n") {
				t.Error("it shows the password")
			}
			if after := everything(t, server, good); after != before {
				t.Errorf("etcd held\n%s\nand holds\n%s", before, after)
			}
		})
	}
	if got := content(live.board.Get(at("1"))); got != "x [] v0 removed=false" || live.State().Degraded != "" {
		t.Errorf("the live service has %s, and says %+v", got, live.State())
	}
	must(t, live.Update(t.Context(), at("2"), says("x", time.Minute)))
}

// everything is what stands in etcd, as its root sees it.
func everything(t *testing.T, s *Server, c store.Config) string {
	t.Helper()
	client := s.root(t, c)
	answer, err := client.Get(t.Context(), "\x00", clientv3.WithFromKey())
	must(t, err)
	var out strings.Builder
	for _, kv := range answer.Kvs {
		fmt.Fprintf(&out, "%s=%q@%d\n", kv.Key, kv.Value, kv.ModRevision)
	}
	return out.String()
}

// refusedStart runs a service that has to end by itself.
func refusedStart(t *testing.T, bin string, c store.Config) (exit int, text string) {
	t.Helper()
	dir := runtest.Dir(t)
	address := runtest.Address(8446)
	file := filepath.Join(dir, "discovery.yaml")
	yaml := fmt.Sprintf("apiVersion: tombolo.dev/v1alpha1\nkind: DiscoveryConfig\nstateDir: %[1]s/state\nrunDir: %[1]s/run\nlisten: %[2]q\nadmin: {listen: %[3]q}\ntls: {none: true}\n"+
		"store: {etcd: {endpoints: [%[4]q], prefix: %[5]q, caFile: %[6]q, certFile: %[7]q, keyFile: %[8]q, username: %[9]q, passwordFile: %[10]q}}\n",
		dir, address, strings.TrimSuffix(address, "8446")+"8447", c.Endpoints[0], c.Prefix, c.CAFile, c.CertFile, c.KeyFile, c.Username, c.PasswordFile)
	must(t, os.WriteFile(file, []byte(yaml), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), runtest.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "discovery", "--config", file)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	err := cmd.Run()
	var ended *exec.ExitError
	if ctx.Err() != nil || !errors.As(err, &ended) {
		t.Fatalf("it did not end by itself: %v\n%s", err, &errs)
	}
	return ended.ExitCode(), errs.String()
}
