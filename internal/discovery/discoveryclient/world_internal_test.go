// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/member"
	"github.com/tombolo-io/tombolo/internal/base/runtest"
	"github.com/tombolo-io/tombolo/internal/discovery/roster"
	"github.com/tombolo-io/tombolo/internal/discovery/seal"
	"github.com/tombolo-io/tombolo/proto/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a network in memory, in which services have names.
type world struct {
	t  *testing.T
	mu sync.Mutex
	at map[string]*runtest.Memory
}

func newWorld(t *testing.T) *world { return &world{t: t, at: map[string]*runtest.Memory{}} }

func (w *world) dial(ctx context.Context, _, address string) (net.Conn, error) {
	w.mu.Lock()
	ln := w.at[address]
	w.mu.Unlock()
	if ln == nil {
		return nil, errors.New("connection refused")
	}
	return ln.DialContext(ctx)
}

// serve runs a gRPC server at an address until the returned function ends it.
func (w *world) serve(address string, register func(*grpc.Server)) (stop func()) {
	ln := runtest.ListenMemory()
	srv := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 9 * time.Second}))
	register(srv)
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(ln) }()
	w.mu.Lock()
	w.at[address] = ln
	w.mu.Unlock()
	return sync.OnceFunc(func() {
		w.mu.Lock()
		if w.at[address] == ln {
			delete(w.at, address)
		}
		w.mu.Unlock()
		srv.Stop()
		<-done
	})
}

// newSecret writes a secret file.
func newSecret(t *testing.T) string {
	t.Helper()
	s, err := seal.NewSecret(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(s.Encode()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// node is a client under test.
type node struct {
	*Client
	t    *testing.T
	stop func()
}

// setup is how a node differs from the usual one.
type setup struct {
	name      string
	secrets   []string
	services  []v1alpha1.MeshService
	id        string // of the cluster in the older protocol
	dir       string
	file      string
	lease     time.Duration
	sources   []Source
	announced chan<- struct{}
	mute      bool // it only watches
	member    func(*v1alpha1.MeshAnnounce)
}

func native(url string) v1alpha1.MeshService {
	return v1alpha1.MeshService{URL: "http://" + url, Insecure: true, Proxy: "none", Protocol: "native"}
}

func sidero(url string) v1alpha1.MeshService {
	return v1alpha1.MeshService{URL: "http://" + url, Insecure: true, Proxy: "none", Protocol: "sidero"}
}

func (w *world) config(s setup) Config {
	t := w.t
	t.Helper()
	cache := s.dir != ""
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	raw := v1alpha1.MeshConfig{
		Cluster: v1alpha1.MeshCluster{SecretFiles: s.secrets, ID: s.id}, Node: v1alpha1.MeshNode{Name: s.name, StateDir: s.dir},
		Sources: v1alpha1.MeshSources{Services: s.services, File: s.file}, Cache: &cache,
	}
	raw.Announce.PublicKey = keyOf(s.name).String()
	raw.Announce.Endpoints = []string{"192.0.2.1:51820"}
	raw.Announce.Lease = v1alpha1.Duration{Duration: s.lease}
	if s.member != nil {
		s.member(&raw.Announce)
	}
	v := validator{read: true, add: func(path, format string, args ...any) { t.Errorf(path+": "+format, args...) }}
	cfg := v.config(raw)
	if err := errors.Join(v.files...); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func keyOf(name string) (k member.Key) {
	k[0] = 9
	copy(k[1:], name)
	return k
}

// start runs a node until stop.
func (w *world) start(s setup) *node {
	w.t.Helper()
	f, err := New(w.config(s), Options{
		Log: slog.New(slog.DiscardHandler), Reg: prometheus.NewRegistry(), Version: "test", Dial: w.dial, Watch: s.mute, Sources: s.sources, Announced: s.announced,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	return &node{f, w.t, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("%s: %v", s.name, err)
		}
	})}
}

// names are the members that a node knows.
func (n *node) names() (out []string) {
	r, _ := n.Result()
	for _, m := range r.Members {
		out = append(out, m.Node)
	}
	return out
}

func (n *node) member(name string) *roster.Member {
	r, _ := n.Result()
	for i := range r.Members {
		if r.Members[i].Node == name {
			return &r.Members[i]
		}
	}
	return nil
}

// knows checks whom a node knows after a time.
func (n *node) knows(after time.Duration, want ...string) {
	n.t.Helper()
	time.Sleep(after)
	synctest.Wait()
	if got := n.names(); !equal(got, want) {
		n.t.Errorf("after %v it knows %v, want %v (%+v)", after, got, want, n.Status())
	}
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// settle is long enough for a session to begin, and news to be merged.
const settle = 2 * time.Second

// nativeFake is a native service as section 3 describes it, with what a test
// wants it to do wrong.
type nativeFake struct {
	discovery.UnimplementedDiscoveryServer
	t *testing.T

	mu                sync.Mutex
	entries           map[string]*discovery.Entry
	streams           map[*nativeStream]bool
	puts              []*discovery.Entry
	attended          int           // sessions that were ever begun
	most              int           // at a time
	ends              time.Duration // of a session; zero: never
	unready           bool
	ttlMax, sealedMax uint32
	onPut             func(e *discovery.Entry) *discovery.FromService // nil: take it
	first             func() *discovery.FromService                   // in place of the challenge
	junk              []*discovery.FromService                        // after the snapshot
}

type nativeStream struct {
	out     chan *discovery.FromService
	cluster seal.ClusterID
}

func newNativeFake(t *testing.T) *nativeFake {
	return &nativeFake{t: t, ttlMax: 1800, entries: map[string]*discovery.Entry{}, streams: map[*nativeStream]bool{}}
}

func (f *nativeFake) register(s *grpc.Server) { discovery.RegisterDiscoveryServer(s, f) }

func (f *nativeFake) Attend(stream grpc.BidiStreamingServer[discovery.FromMember, discovery.FromService]) error {
	nonce := make([]byte, seal.NonceSize)
	rand.Read(nonce)
	challenge := &discovery.FromService{Frame: &discovery.FromService_Challenge{Challenge: &discovery.Challenge{Nonce: nonce, VersionMin: 1, VersionMax: 3}}}
	if f.first != nil {
		challenge = f.first()
	}
	if err := stream.Send(challenge); err != nil {
		return err
	}
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	proven, err := seal.VerifyProof(nonce, m.GetProof())
	if err != nil || m.GetProof().GetVersion() != 1 {
		return stream.Send(&discovery.FromService{Frame: &discovery.FromService_Refusal{Refusal: &discovery.Refusal{Code: "entry_invalid", What: "no", Why: "proof"}}})
	}
	s := &nativeStream{out: make(chan *discovery.FromService, 4096), cluster: proven.Cluster}
	stream.Send(&discovery.FromService{Frame: &discovery.FromService_Welcome{Welcome: &discovery.Welcome{
		ObservedIp: []byte{192, 0, 2, 77}, ObservedPort: 4711, TtlMax: f.ttlMax, SealedMax: f.sealedMax,
	}}})
	f.mu.Lock()
	var all []*discovery.Entry
	for _, e := range f.entries {
		if e.GetVersion() > 0 {
			all = append(all, e)
		}
	}
	s.out <- &discovery.FromService{Frame: &discovery.FromService_Snapshot{Snapshot: &discovery.Snapshot{Entries: all}}}
	s.out <- &discovery.FromService{Frame: &discovery.FromService_Snapshot{Snapshot: &discovery.Snapshot{Last: true, Settled: !f.unready}}}
	for _, j := range f.junk {
		s.out <- j
	}
	f.streams[s] = true
	f.attended++
	f.most = max(f.most, len(f.streams))
	f.mu.Unlock()
	defer func() { f.mu.Lock(); delete(f.streams, s); f.mu.Unlock() }()
	in := make(chan *discovery.FromMember)
	go func() {
		defer close(in)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case in <- m:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	var ends <-chan time.Time
	if f.ends > 0 {
		ends = time.After(f.ends)
	}
	for {
		select {
		case <-ends:
			return nil
		case m, ok := <-in:
			if !ok {
				return nil
			}
			if e := m.GetPut().GetEntry(); e != nil {
				s.out <- f.put(proven, e)
			}
		case o := <-s.out:
			if err := stream.Send(o); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (f *nativeFake) put(p seal.Proven, e *discovery.Entry) *discovery.FromService {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.puts = append(f.puts, e)
	if f.onPut != nil {
		if answer := f.onPut(e); answer != nil {
			return answer
		}
	}
	if _, err := seal.Verify(p.Cluster, p.Verifier, e); err != nil {
		f.t.Errorf("a put that does not verify: %v", err)
	}
	if p.Member == nil || *p.Member != seal.MemberOf(e.GetMember()) {
		f.t.Error("a put of another member than the one who attends")
	}
	at := string(p.Cluster[:]) + string(e.GetMember())
	if known := f.entries[at]; known.GetVersion() >= e.GetVersion() {
		return refusal("entry_stale", e.GetVersion(), known.GetVersion())
	}
	f.entries[at] = e
	for s := range f.streams {
		if s.cluster == p.Cluster {
			s.out <- change(e)
		}
	}
	return &discovery.FromService{Frame: &discovery.FromService_Ack{Ack: &discovery.Ack{Version: e.GetVersion()}}}
}

func change(e ...*discovery.Entry) *discovery.FromService {
	return &discovery.FromService{Frame: &discovery.FromService_Change{Change: &discovery.Change{Entries: e}}}
}

func refusal(code string, version, known uint64) *discovery.FromService {
	return &discovery.FromService{Frame: &discovery.FromService_Refusal{Refusal: &discovery.Refusal{Code: code, What: "no", Why: "why", Version: version, Known: known}}}
}

// tell sends a frame to all that attend.
func (f *nativeFake) tell(o *discovery.FromService) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.streams {
		s.out <- o
	}
}

func (f *nativeFake) putsOf() []*discovery.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*discovery.Entry(nil), f.puts...)
}
