// SPDX-License-Identifier: Apache-2.0

// Package kubetest is a small Kubernetes API server for tests: the few calls that
// package kube makes, with pages, watches, forgotten versions and refusals, and
// the contract that it shares with the real one (Contract).
package kubetest

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/kube"
)

// The paths of the collections.
const (
	Members = "/apis/tombolo.dev/v1alpha1/members"
	Nodes   = "/api/v1/nodes"
	// Clusters and ClusterNodes are the objects of linked clusters.
	Clusters     = "/apis/tombolo.dev/v1alpha1/clusters"
	ClusterNodes = "/apis/tombolo.dev/v1alpha1/clusternodes"
	NodeConfigs  = "/apis/tombolo.dev/v1alpha1/nodeconfigs"
	Tenants      = "/apis/tombolo.dev/v1alpha1/edgetenants" // of all namespaces
	// ConfigMaps are those of one namespace.
	ConfigMaps = "/api/v1/namespaces/gateways/configmaps"
)

// Server is the fake. A bearer token is the name of the node whose kubelet asks.
type Server struct {
	http *httptest.Server

	mu        sync.Mutex
	version   int
	objects   map[string]map[string]map[string]any // collection, name
	log       []change
	forgotten int // versions up to this one are not known any more
	changed   chan struct{}
	requests  map[string]int // method and path
	mayList   bool           // nodes
	onlyGet   bool           // of the own Node: not to list and watch it
	away      bool
	unguarded string // what of the policy is not there; empty: nothing
	ranges    int    // that were assigned
	clock     func() time.Time
	mangle    func(r *http.Request, w http.ResponseWriter) bool // true: it has answered
	pages     map[string][]map[string]any                       // continue tokens
}

type change struct {
	version    int
	collection string
	kind       string
	object     map[string]any
}

// New starts one, until the end of the test.
func New(t testing.TB) *Server { return NewAt(t, nil) }

// NewAt is New at a listener, such as one of another network namespace; nil: on loopback.
func NewAt(t testing.TB, at net.Listener) *Server {
	s := &Server{
		version: 100, changed: make(chan struct{}),
		objects: map[string]map[string]map[string]any{Members: {}, Nodes: {}, Tenants: {}, ConfigMaps: {}, Clusters: {},
			ClusterNodes: {}, NodeConfigs: {}},
		requests: map[string]int{}, clock: time.Now, pages: map[string][]map[string]any{},
	}
	s.http = httptest.NewUnstartedServer(s)
	if at != nil {
		_ = s.http.Listener.Close() // nobody has used it
		s.http.Listener = at
	}
	s.http.EnableHTTP2 = true
	s.http.Config.ErrorLog = nil
	s.http.StartTLS()
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Kubeconfig is one for the kubelet of a node. The name is one that httptest's certificate has.
func (s *Server) Kubeconfig(node string) []byte {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: %q, tls-server-name: example.com, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %q}}]
`, s.http.URL, base64Of(ca), node)
}

// Client is the client of a node's kubelet.
func (s *Server) Client(t testing.TB, node string) *kube.Client {
	t.Helper()
	a, err := kube.ReadKubeconfig("kubeconfig", s.Kubeconfig(node))
	if err != nil {
		t.Fatal(err)
	}
	c := kube.NewClient(a, nil)
	t.Cleanup(c.Close)
	return c
}

// Put makes or changes an object, as an administrator.
func (s *Server) Put(collection, name, object string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var o map[string]any
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		panic(err) // of the test's own making
	}
	s.put(collection, name, o)
}

// AddNode makes a Node.
func (s *Server) AddNode(_ testing.TB, name string) string {
	s.Put(Nodes, name, `{"metadata":{"uid":"uid-`+name+`","annotations":{}}}`)
	return "uid-" + name
}

// DeleteNode removes a Node, and as Kubernetes' own collector does, what it owns.
func (s *Server) DeleteNode(_ testing.TB, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid := s.objects[Nodes][name]["metadata"].(map[string]any)["uid"]
	s.remove(Nodes, name)
	for member, o := range s.objects[Members] {
		owners, _ := o["metadata"].(map[string]any)["ownerReferences"].([]any)
		if slices.ContainsFunc(owners, func(x any) bool { return x.(map[string]any)["uid"] == uid }) {
			s.remove(Members, member)
		}
	}
}

// Delete removes an object.
func (s *Server) Delete(collection, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(collection, name)
}

// Lose removes all objects of a collection without telling a watch, and forgets
// all versions: a store that was put back.
func (s *Server) Lose(collection string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.objects[collection])
	s.forget()
}

// Forget makes all versions so far unknown.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget()
}

func (s *Server) forget() {
	s.version++
	s.forgotten, s.log = s.version, nil
	clear(s.pages)
	s.wake()
}

// Away has every request fail, and ends the watches.
func (s *Server) Away(away bool) {
	s.mu.Lock()
	s.away = away
	s.mu.Unlock()
	if away {
		s.http.CloseClientConnections()
	}
}

// MayListNodes gives kubelets the permission that 1.32 took from them.
func (s *Server) MayListNodes(may bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mayList = may
}

// OnlyGet takes from all the permission to list and watch their own Node, which a role of
// a service account cannot give.
func (s *Server) OnlyGet(only bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onlyGet = only
}

// Assign sets the ranges of a Node's pods, as Kubernetes' controllers do.
func (s *Server) Assign(_ testing.TB, node string, ranges ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := copied(s.objects[Nodes][node])
	o["spec"] = map[string]any{"podCIDR": ranges[0], "podCIDRs": ranges}
	s.put(Nodes, node, o)
}

// Assigned assigns a Node a range of its own, and gives it.
func (s *Server) Assigned(t testing.TB, node string) []string {
	s.mu.Lock()
	s.ranges++
	ranges := []string{fmt.Sprintf("10.244.%d.0/24", s.ranges), fmt.Sprintf("fd00:244:%d::/64", s.ranges)}
	s.mu.Unlock()
	s.Assign(t, node, ranges...)
	return ranges
}

// Unguard takes away what holds nodes to the Member of their own name: "policy", "binding",
// "deny" of that, or "right" to look at them; empty: nothing.
func (s *Server) Unguard(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unguarded = what
}

// Clock sets the server's clock.
func (s *Server) Clock(clock func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = clock
}

// Mangle answers in the place of the server where it says that it did.
func (s *Server) Mangle(mangle func(r *http.Request, w http.ResponseWriter) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mangle = mangle
}

// Requests counts requests so far, "LIST", "WATCH" or a method, of a path.
func (s *Server) Requests(what, path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[what+" "+path]
}

// Object gives an object; nil for none.
func (s *Server) Object(collection, name string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return copied(s.objects[collection][name])
}

func (s *Server) put(collection, name string, o map[string]any) {
	s.version++
	old, there := s.objects[collection][name]
	m, _ := o["metadata"].(map[string]any)
	if m == nil {
		m = map[string]any{}
		o["metadata"] = m
	}
	m["name"], m["resourceVersion"], m["generation"] = name, strconv.Itoa(s.version), float64(1)
	if there {
		m["generation"] = old["metadata"].(map[string]any)["generation"].(float64) + 1
	}
	m["managedFields"] = []any{map[string]any{"manager": "tombolo", "time": s.clock().UTC().Format(time.RFC3339)}}
	s.objects[collection][name] = o
	kind := "ADDED"
	if there {
		kind = "MODIFIED"
	}
	s.log = append(s.log, change{s.version, collection, kind, copied(o)})
	s.wake()
}

func (s *Server) remove(collection, name string) {
	o := s.objects[collection][name]
	if o == nil {
		return
	}
	s.version++
	delete(s.objects[collection], name)
	last := copied(o)
	last["metadata"].(map[string]any)["resourceVersion"] = strconv.Itoa(s.version)
	s.log = append(s.log, change{s.version, collection, "DELETED", last})
	s.wake()
}

func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func copied(o map[string]any) map[string]any {
	if o == nil {
		return nil
	}
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // it was JSON
	}
	var out map[string]any
	if err := json.Unmarshal(text, &out); err != nil {
		panic(err)
	}
	return out
}

func readAll(r *http.Request) map[string]any {
	var out map[string]any
	data, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || json.Unmarshal(data, &out) != nil {
		return nil
	}
	return out
}

func cut(path string) (collection, name string) {
	for _, c := range []string{Members, Nodes, Tenants, ConfigMaps, Clusters, ClusterNodes, NodeConfigs} {
		if rest, ok := strings.CutPrefix(path, c); ok {
			return c, strings.TrimPrefix(rest, "/")
		}
	}
	return "", ""
}
