// SPDX-License-Identifier: Apache-2.0

package konnectivity

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// api is an API server with the little that the programs use: reviews of tokens, and leases.
type api struct {
	kubeconfig string

	mu        sync.Mutex
	reviews   int
	away      bool              // reviews are answered with an error
	invalid   map[string]bool   // tokens
	users     map[string]string // of tokens that do not say it
	audiences any               // that reviews name; nil: those that were asked about
	leases    map[string]map[string]any
	lists     map[string]bool // of leases that were asked for, by path and selector
	denied    bool            // leases
	slices    []any           // EndpointSlices of the Service test/servers
}

// object is a part of an object in JSON.
func object(of map[string]any, key string) map[string]any {
	m, ok := of[key].(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	return m
}

func newAPI(w *world) *api {
	a := &api{kubeconfig: w.file("kubeconfig"), leases: map[string]map[string]any{}, users: map[string]string{},
		lists: map[string]bool{}, invalid: map[string]bool{"expired": true}}
	srv := httptest.NewTLSServer(a)
	w.Cleanup(srv.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	config := fmt.Sprintf(`
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, srv.URL, base64.StdEncoding.EncodeToString(ca))
	w.must(os.WriteFile(a.kubeconfig, []byte(config), 0o600))
	return a
}

// ServeHTTP implements http.Handler. The token of an agent is the name of its user, and the node after an @.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var in map[string]any
	if r.Method != http.MethodGet && r.Method != http.MethodDelete {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	name := path.Base(r.URL.Path)
	var out any = map[string]any{}
	switch {
	case r.URL.Path == "/apis/authentication.k8s.io/v1/tokenreviews":
		a.reviews++
		if a.away {
			http.Error(w, "etcd is away", http.StatusInternalServerError)
			return
		}
		token, _ := object(in, "spec")["token"].(string)
		name, node, _ := strings.Cut(cmp.Or(a.users[token], token), "@")
		user := map[string]any{"username": name}
		if node != "" {
			user["extra"] = map[string]any{"authentication.kubernetes.io/node-name": []string{node}}
		}
		in["status"] = map[string]any{"authenticated": !a.invalid[token], "user": user,
			"audiences": cmp.Or(a.audiences, any(object(in, "spec")["audiences"]))}
		out = in
	case a.denied && strings.Contains(r.URL.Path, "/leases"):
		http.Error(w, "it is not allowed", http.StatusForbidden)
		return
	case r.Method == http.MethodGet && name == "leases":
		a.lists[r.URL.Path+" "+r.URL.Query().Get("labelSelector")] = true
		var items []any
		for _, l := range a.leases {
			items = append(items, l)
		}
		out = map[string]any{"items": items}
	case r.Method == http.MethodPost && name == "leases":
		name, _ := object(in, "metadata")["name"].(string)
		a.leases[name] = in
	case path.Base(path.Dir(r.URL.Path)) == "leases" && r.Method != http.MethodDelete:
		l, there := a.leases[name]
		switch {
		case !there:
			http.NotFound(w, r)
			return
		case r.Method == http.MethodPut:
			a.leases[name] = in
		case r.Method != http.MethodGet: // roles that were made for the reference allow nothing else
			http.Error(w, "it is not allowed", http.StatusForbidden)
			return
		}
		out = l
	case r.URL.Path == "/apis/discovery.k8s.io/v1/namespaces/test/endpointslices" &&
		r.URL.Query().Get("labelSelector") == "kubernetes.io/service-name=servers":
		out = map[string]any{"items": a.slices}
	case r.Method == http.MethodDelete:
		delete(a.leases, name)
	default:
		http.NotFound(w, r)
		return
	}
	json.NewEncoder(w).Encode(out)
}

// set changes what it says.
func (a *api) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// lease puts one that was renewed some time ago.
func (a *api) lease(name string, renewed time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leases[name] = map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{
		"holderIdentity": name, "leaseDurationSeconds": 30, "renewTime": renewed.UTC().Format(time.RFC3339Nano)}}
}

func (a *api) names() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := range a.leases {
		out = append(out, n)
	}
	return out
}

// tokens starts a server that has an API review the tokens of agents.
func (w *world) tokens(a *api) *proxy {
	return w.ours("grpc", false, "--cluster-ca-cert=", "--kubeconfig="+a.kubeconfig, "--agent-namespace=kube-system",
		"--agent-service-account=konnectivity-agent", "--authentication-audience=system:konnectivity-server")
}

// TestTokens has the API judge the tokens of agents, and asks once for one that comes again and again.
func TestTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(w)
	p := w.tokens(a)
	token := func(user string) string {
		file := w.file("token-" + strings.ReplaceAll(user, ":", "-"))
		w.must(os.WriteFile(file, []byte(user), 0o600))
		return "--service-account-token-path=" + file
	}
	theirAgent(w, p.agentPort, token("system:serviceaccount:default:konnectivity-agent"), "--agent-id=stranger")
	eventually(t, "another account is refused", func() bool { return strings.Contains(p.log.String(), "is another one's") })
	theirAgent(w, p.agentPort, token("expired"), "--agent-id=late")
	eventually(t, "a token that is not valid is refused", func() bool {
		return strings.Contains(p.log.String(), "the token is not valid")
	})
	a.set(func() { a.audiences = []string{"https://kubernetes.default.svc"} })
	theirAgent(w, p.agentPort, token("system:serviceaccount:kube-system:konnectivity-agent"), "--agent-id=elsewhere")
	eventually(t, "a token for another audience is refused", func() bool {
		return strings.Contains(p.log.String(), "is for another audience")
	})
	ourAgent(w, p.agentPort, "--agent-id=none")
	eventually(t, "an agent without one is refused", func() bool { return strings.Contains(p.log.String(), "has no token") })
	if status, _ := get(p.healthPort, "/readyz"); status == http.StatusOK {
		t.Fatal("the server has an agent")
	}
}

// TestGoodTokens connects agents with tokens; one that looks for servers all the time is not reviewed all the time.
func TestGoodTokens(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]startAgent{"their agent": theirAgent, "our agent": ourAgent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := newAPI(w)
			p := w.tokens(a)
			file := w.file("token")
			w.must(os.WriteFile(file, []byte("system:serviceaccount:kube-system:konnectivity-agent"), 0o600))
			start(w, p.agentPort, "--service-account-token-path="+file, "--sync-forever", "--agent-cert=", "--agent-key=")
			p.ready()
			w.echo(p)
			eventually(t, "the agent comes again", func() bool { return strings.Count(p.log.String(), "agent connected") > 3 })
			a.mu.Lock()
			defer a.mu.Unlock()
			if a.reviews != 1 {
				t.Errorf("the token was reviewed %d times", a.reviews)
			}
		})
	}
}

// TestNodesOfAnAccount refuses an agent that has the account of another, and not its node, the other's id. One that takes
// its place on its node gets it.
func TestNodesOfAnAccount(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]startAgent{"their agent": theirAgent, "our agent": ourAgent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := newAPI(w)
			p := w.tokens(a)
			agent := func(node string) *agentOf {
				file := w.file("token-" + node)
				w.must(os.WriteFile(file, []byte("system:serviceaccount:kube-system:konnectivity-agent@"+node), 0o600))
				return start(w, p.agentPort, "--service-account-token-path="+file, "--agent-id=same", "--agent-cert=", "--agent-key=")
			}
			agent("node-1")
			p.ready()
			agent("node-2")
			const why = "is connected by it, and this agent is system:serviceaccount:kube-system:konnectivity-agent on node-2"
			eventually(t, "the agent of another node is refused", func() bool { return strings.Contains(p.log.String(), why) })
			agent("node-1")
			eventually(t, "the next agent of the node is taken", func() bool {
				return metric(p.healthPort, "konnectivity_network_proxy_server_ready_backend_connections") == "2"
			})
			w.echo(p)
		})
	}
}

// TestTokensOfConnectedAgents has tokens reviewed while their agents are connected: an API server that is away changes
// nothing, and one that does not know a token any more has its agent let go.
func TestTokensOfConnectedAgents(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]startAgent{"their agent": theirAgent, "our agent": ourAgent,
		"our agent by their wire": func(w *world, port int, extra ...string) *agentOf {
			return ourAgent(w, port, append(extra, "--native=false")...)
		}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.reviews = 20 * time.Millisecond
			a := newAPI(w)
			p := w.tokens(a)
			const token = "system:serviceaccount:kube-system:konnectivity-agent"
			file := w.file("token")
			w.must(os.WriteFile(file, []byte(token), 0o600))
			agent := start(w, p.agentPort, "--service-account-token-path="+file, "--agent-cert=", "--agent-key=")
			p.ready()
			conn := w.echo(p)
			reviews := func(outcome string) bool {
				n := metric(p.healthPort, `tombolo_konnectivity_token_reviews_total{outcome="`+outcome+`"}`)
				return n != "" && n != "0" && n != "1"
			}
			eventually(t, "the token is reviewed again", func() bool { return reviews("good") })
			a.set(func() { a.away = true })
			eventually(t, "the API server is away", func() bool { return reviews("failed") })
			a.set(func() { a.away = false })
			echoes(t, conn, 10_000)
			if n := strings.Count(p.log.String(), "agent connected"); n != 1 {
				t.Errorf("the agent connected %d times", n)
			}
			a.set(func() { a.invalid[token] = true })
			eventually(t, "the agent is let go", func() bool {
				status, _ := get(p.healthPort, "/readyz")
				return status != http.StatusOK && strings.Contains(p.log.String(), "an agent is let go")
			})
			if !reviews("refused") {
				t.Error("no refusals are counted")
			}
			if agent.process != nil {
				eventually(t, "the agent says why", func() bool {
					return strings.Contains(agent.process.Err.String(), "not_authorized: the token of a connected agent is not valid")
				})
			} else {
				const why = `msg="a server is gone" server=`
				eventually(t, "the agent says why, and what to do", func() bool {
					_, line, _ := strings.Cut(agent.log.String(), why)
					line, _, _ = strings.Cut(line, "\n")
					return strings.Contains(line, `reason="not_authorized: `) && strings.Contains(line, "connects again by itself")
				})
			}
			ended := make(chan struct{})
			go func() { defer close(ended); io.Copy(io.Discard, conn) }()
			select {
			case <-ended:
			case <-time.After(bound):
				t.Error("its connection lives")
			}
			eventually(t, "it is not taken again", func() bool { return strings.Contains(p.log.String(), "an agent was refused") })
			a.set(func() { delete(a.invalid, token) })
			p.ready()
			w.echo(p)
		})
	}
}

// TestLeases publishes a lease for a server, removes those of servers that are gone, and counts servers by them.
func TestLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := newAPI(w)
	a.lease("konnectivity-proxy-server-gone", time.Now().Add(-time.Hour))
	p := w.ours("grpc", false, "--enable-lease-controller", "--kubeconfig="+a.kubeconfig, "--server-id=one")
	eventually(t, "there is one lease", func() bool {
		names := a.names()
		return len(names) == 1 && names[0] == "konnectivity-proxy-server-one"
	})
	agent := ourAgent(w, p.agentPort, "--count-server-leases", "--kubeconfig="+a.kubeconfig)
	agent.ready()
	a.lease("konnectivity-proxy-server-two", time.Now())
	eventually(t, "the agent wants two servers", func() bool {
		return metric(agent.health, "konnectivity_network_proxy_agent_known_server_count") == "2"
	})
	p.soft()
	eventually(t, "the lease is removed", func() bool { return len(a.names()) == 1 })
}

// TestRotation gives a server and an agent new certificates of a new CA while they run. Each shows and wants the new
// ones when it connects the next time.
func TestRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.ours("http-connect", true)
	cut := make(chan struct{})
	port := w.forward(func() string { return fmt.Sprintf("127.0.0.1:%d", p.agentPort) }, cut)
	ourAgent(w, port, "--agent-id=first")
	p.ready()
	w.echo(p)
	w.newCA()
	a := ourAgent(w, p.agentPort, "--agent-id=second") // knows only the new one
	a.ready()
	w.echo(p) // as a kube-apiserver that knows only the new one
	cut <- struct{}{}
	eventually(t, "the first agent is back", func() bool {
		return strings.Count(p.log.String(), `msg="agent connected" agent=first `) == 2
	})
}

// TestATokenThatEnds: the end of a token ends nothing. Its agent stays with its connections, nobody asks about the
// token any more, and when the agent connects again it shows the one that the kubelet has written meanwhile.
func TestATokenThatEnds(t *testing.T) {
	t.Parallel()
	const account = "system:serviceaccount:kube-system:konnectivity-agent"
	for name, start := range map[string]startAgent{"their agent": theirAgent, "our agent": ourAgent} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.reviews = 20 * time.Millisecond
			a := newAPI(w)
			p := w.tokens(a)
			file, cut := w.file("token"), make(chan struct{})
			port := w.forward(func() string { return fmt.Sprintf("127.0.0.1:%d", p.agentPort) }, cut)
			agent := func(port int, file string, extra ...string) {
				start(w, port, append(extra, "--service-account-token-path="+file, "--agent-cert=", "--agent-key=")...)
			}
			claims := fmt.Sprintf(`{"exp":%d}`, time.Now().Add(30*time.Second).Unix()) // within what clocks may differ
			ending := "h." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".s"
			a.set(func() { a.users[ending] = account })
			w.must(os.WriteFile(file, []byte(ending), 0o600))
			agent(port, file, "--agent-id=a")
			p.ready()
			conn := w.echo(p)

			a.set(func() { a.invalid[ending] = true })
			w.must(os.WriteFile(file, []byte(account), 0o600))
			clock := w.file("clock") // of an agent whose token is reviewed all the time
			w.must(os.WriteFile(clock, []byte(account+"@node-1"), 0o600))
			agent(p.agentPort, clock, "--agent-id=clock")
			eventually(t, "another token is reviewed many times", func() bool {
				n, err := strconv.Atoi(metric(p.healthPort, `tombolo_konnectivity_token_reviews_total{outcome="good"}`))
				return err == nil && n > 3*reviewRefusals
			})
			if got := metric(p.healthPort, `tombolo_konnectivity_token_reviews_total{outcome="refused"}`); got != "0" {
				t.Errorf("the token that has ended was refused %s times", got)
			}
			echoes(t, conn, 10_000)
			connected := func() int { return strings.Count(p.log.String(), `msg="agent connected" agent=a `) }
			if n := connected(); n != 1 || strings.Contains(p.log.String(), "agent gone") {
				t.Errorf("the agent has connected %d times, or is gone", n)
			}

			cut <- struct{}{}
			eventually(t, "the agent is back", func() bool { return connected() == 2 })
			if strings.Contains(p.log.String(), "an agent was refused") {
				t.Error("it has shown the token that has ended")
			}
		})
	}
}

// reviewRefusals is after how many of them an agent is let go.
const reviewRefusals = 4
