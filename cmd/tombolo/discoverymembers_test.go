// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/tombolo-io/tombolo/internal/base/runtest"
	pb "github.com/tombolo-io/tombolo/proto/sidero"
)

func TestSecretVerbs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	id := must(t, "discovery", "secret", "create", file)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(id, "t1-") {
		t.Errorf("%q with mode %v, %v", id, info.Mode(), err)
	}
	secret, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var shown clusterOf
	strictly(t, must(t, "discovery", "secret", "show", file, "-o", "json"), &shown)
	if shown.Cluster+"\n" != id || shown.Kind != "DiscoverySecret" || strings.Contains(must(t, "discovery", "secret", "show", file), strings.TrimSpace(string(secret))) {
		t.Errorf("shown is %+v, created was %q", shown, id)
	}
	wantExit(t, tombolo(t, "discovery", "secret", "create", file), 2, "exists already")
	if after, err := os.ReadFile(file); err != nil || string(after) != string(secret) {
		t.Errorf("a secret was written over, %v", err)
	}
	if out := must(t, "discovery", "secret", "create", "-"); len(out) != 45 || out == string(secret) {
		t.Errorf("the secret alone: %d characters", len(out))
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	o := tombolo(t, "discovery", "secret", "show", file)
	wantExit(t, o, 2, "secret_invalid", "chmod 600")
	if strings.Contains(o.err+o.out, strings.TrimSpace(string(secret))) {
		t.Error("a refusal shows the secret")
	}
}

// TestTheOperatorFileIsNotForAll: it holds a key.
func TestTheOperatorFileIsNotForAll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "operator.pem")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	wantExit(t, tombolo(t, "status", "--hub", "127.0.0.1:1", "--operator", file), 2, "secret_invalid", "0644", "chmod 600")
}

// meshFiles writes a configuration with a file of members.
func meshFiles(t *testing.T, sources string) (config, health, dir string) {
	t.Helper()
	dir, health = t.TempDir(), runtest.Address(8448)
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	must(t, "discovery", "secret", "create", filepath.Join(dir, "secret"))
	list := write("members.yaml", "apiVersion: tombolo.dev/v1alpha1\nkind: MemberList\nmembers:\n"+
		"  - {name: b, publicKey: CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=, overlay6: 'fd00::b', endpoints: ['192.0.2.7:51820'], role: worker}\n  - {name: c}\n")
	config = write("mesh.yaml", "apiVersion: tombolo.dev/v1alpha1\nkind: MeshConfig\ncluster: {id: x, secretFiles: ["+filepath.Join(dir, "secret")+"]}\n"+
		"node: {name: a, stateDir: "+filepath.Join(dir, "state")+", runDir: "+runtest.Dir(t)+"}\nhealthListen: "+health+"\nsources: {file: "+list+sources+"}\n")
	return config, health, dir
}

func TestMembersVerb(t *testing.T) {
	config, _, dir := meshFiles(t, "")
	table := must(t, "discovery", "members", "--config", config)
	for _, say := range []string{"NODE", "b", "worker", "fd00::b", "192.0.2.7:51820", "static", "members.yaml"} {
		if !strings.Contains(table, say) {
			t.Errorf("the table does not say %q:\n%s", say, table)
		}
	}
	facts := must(t, "discovery", "members", "b", "--config", config)
	for _, say := range []string{"overlay6", "publicKey", "endpoints", "192.0.2.7:51820 static", "static/" + filepath.Join(dir, "members.yaml")} {
		if !strings.Contains(facts, say) {
			t.Errorf("the facts do not say %q:\n%s", say, facts)
		}
	}
	var list struct {
		APIVersion, Kind string
		Members          []map[string]any
		Sources          []map[string]any
	}
	if err := json.Unmarshal([]byte(must(t, "discovery", "members", "--config", config, "-o", "json")), &list); err != nil || list.Kind != "DiscoveryMembers" || len(list.Members) != 2 || list.Sources[0]["state"] != "attending" {
		t.Errorf("%+v, %v", list, err)
	}
	wantExit(t, tombolo(t, "discovery", "members", "nobody", "--config", config), 1, "not_found")
	wantExit(t, tombolo(t, "discovery", "members", "--secret-file", filepath.Join(dir, "secret")), 2, "--config FILE")
	wantExit(t, tombolo(t, "discovery", "members", "--config", config, "--service", "https://x"), 2)
	wantExit(t, tombolo(t, "discovery", "members", "--secret-file", filepath.Join(dir, "secret"), "--service", "http://x"), 2, "insecure")
	wantExit(t, tombolo(t, "discovery", "members", "--wait", "50ms", "--secret-file", filepath.Join(dir, "secret"), "--service", "https://"+runtest.Address(1)), 3, "discovery_unreachable")
	if _, err := os.Stat(filepath.Join(dir, "state")); !os.IsNotExist(err) {
		t.Errorf("who only looks has made a state directory: %v", err)
	}
}

// cluster is a service of the older protocol that keeps what is pushed.
type cluster struct {
	pb.UnimplementedClusterServer
	updates chan *pb.AffiliateUpdateRequest
	deletes chan string
}

func (c cluster) Hello(context.Context, *pb.HelloRequest) (*pb.HelloResponse, error) {
	return &pb.HelloResponse{}, nil
}

func (c cluster) AffiliateUpdate(_ context.Context, r *pb.AffiliateUpdateRequest) (*pb.AffiliateUpdateResponse, error) {
	c.updates <- r
	return &pb.AffiliateUpdateResponse{}, nil
}

func (c cluster) AffiliateDelete(_ context.Context, r *pb.AffiliateDeleteRequest) (*pb.AffiliateDeleteResponse, error) {
	c.deletes <- r.GetAffiliateId()
	return &pb.AffiliateDeleteResponse{}, nil
}

func (c cluster) Watch(_ *pb.WatchRequest, s grpc.ServerStreamingServer[pb.WatchResponse]) error {
	if err := s.Send(&pb.WatchResponse{}); err != nil {
		return err
	}
	<-s.Context().Done()
	return nil
}

// TestAnnounceVerb: it announces, is ready, keeps its files, and says farewell.
func TestAnnounceVerb(t *testing.T) {
	ln, err := net.Listen("tcp", runtest.Address(0))
	if err != nil {
		t.Fatal(err)
	}
	svc := cluster{updates: make(chan *pb.AffiliateUpdateRequest, 100), deletes: make(chan string, 100)}
	srv := grpc.NewServer()
	pb.RegisterClusterServer(srv, svc)
	served := make(chan struct{})
	go func() { defer close(served); srv.Serve(ln) }()
	t.Cleanup(func() { srv.Stop(); <-served })
	config, health, dir := meshFiles(t, ", services: [{url: 'http://"+ln.Addr().String()+"', insecure: true, proxy: none}]")
	ctx, cancel := context.WithCancel(runtest.Within(t))
	defer cancel()
	var out, errs runtest.Transcript
	done := make(chan int, 1)
	go func() {
		done <- execute(ctx, []string{"discovery", "announce", "--leave", "--config", config}, strings.NewReader(""), &out, &errs)
	}()
	select {
	case u := <-svc.updates:
		if u.GetAffiliateId() != "a" || u.GetClusterId() != "x" {
			t.Errorf("announced: %v", u)
		}
	case code := <-done:
		t.Fatalf("it ended with %d: %s", code, errs.String())
	}
	ready := func(path string) bool {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
	runtest.Eventually(t, "readiness", func() bool { return ready("/readyz") && ready("/livez") && ready("/metrics") })
	runtest.Eventually(t, "a cache", func() bool { _, err := os.Stat(filepath.Join(dir, "state", "members.cache")); return err == nil })
	cancel()
	if code := <-done; code != 0 {
		t.Errorf("it ended with %d: %s", code, errs.String())
	}
	select {
	case id := <-svc.deletes:
		if id != "a" {
			t.Errorf("%q was deleted", id)
		}
	default:
		t.Error("there was no farewell")
	}
	for _, name := range []string{"member.key", "member.version", "members.cache"} {
		if info, err := os.Stat(filepath.Join(dir, "state", name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", name, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestWatchVerb prints what happens, beginning with what is known.
func TestWatchVerb(t *testing.T) {
	config, _, _ := meshFiles(t, "")
	for format, want := range map[string][]string{"text": {"joined b", "joined c", "listed: "}, "json": {`"what":"joined"`, `"node":"b"`, `{"what":"listed"}`}} {
		ctx, cancel := context.WithCancel(runtest.Within(t))
		var out, errs runtest.Transcript
		done := make(chan int, 1)
		go func() {
			done <- execute(ctx, []string{"discovery", "watch", "--config", config, "-o", format}, strings.NewReader(""), &out, &errs)
		}()
		runtest.Eventually(t, "two members, and that these are all", func() bool { return strings.Count(out.String(), "\n") == 3 })
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("it ended with %d: %s", code, errs.String())
		}
		for _, say := range want {
			if !strings.Contains(out.String(), say) {
				t.Errorf("it does not say %q: %s", say, out.String())
			}
		}
	}
	wantExit(t, tombolo(t, "discovery", "watch", "--config", config, "-o", "xml"), 2)
}
