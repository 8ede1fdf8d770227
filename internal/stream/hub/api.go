// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/stream/hub/record"
	"github.com/tombolo-io/tombolo/internal/stream/hub/state"
	"github.com/tombolo-io/tombolo/internal/stream/splice"
	"github.com/tombolo-io/tombolo/internal/stream/wire"
)

// api serves operators.
type api struct {
	*parts
	dials    *dialer
	agents   *agents
	relays   *relays
	connect  *connect
	backends *backendAPI
	network  *wireGuardAPI
}

// apiHandler is the admin API. Whoever reaches it is an operator: through the
// admin socket, which lies in a private directory, or with an operator certificate.
func (ap *api) apiHandler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, fn func(r *http.Request) (any, error)) { mux.HandleFunc(pattern, answering(fn)) }
	handle("GET /v1/status", ap.apiStatus)
	handle("POST /v1/tokens", ap.apiCreateToken)
	handle("GET /v1/tokens", ap.apiTokens)
	handle("DELETE /v1/tokens/{id}", ap.apiDeleteToken)
	handle("POST /v1/certificates", ap.apiIssue)
	handle("GET /v1/certificates", ap.apiCertificates)
	handle("POST /v1/revocations", ap.apiRevoke)
	handle("GET /v1/clusters", ap.apiClusters)
	handle("DELETE /v1/clusters/{cluster}", ap.apiRemoveCluster)
	handle("POST /v1/clusters/{cluster}/sockets", ap.apiSocket)
	handle("GET /v1/backends", ap.backends.list)
	handle("PUT /v1/clusters/{cluster}/backend", ap.backends.choose)
	handle("POST /v1/clusters/{cluster}/ping", ap.apiPing)
	handle("GET /v1/clusters/{cluster}/explain", ap.apiExplain)
	handle("POST /v1/clusters/{cluster}/wireguard", ap.network.choose)
	handle("POST /v1/clusters/{cluster}/wireguard/side", ap.network.clusterSide)
	handle("GET /v1/clusters/{cluster}/export", ap.network.export)
	handle("POST /v1/import", ap.network.imports)
	handle(endpointPattern, ap.network.endpointSide)
	mux.HandleFunc(streamPattern, ap.apiStream)
	mux.HandleFunc("GET /v1/backup", ap.apiBackup)
	mux.HandleFunc("/", noSuchRequest)
	return mux
}

// streamPattern is served to operators and to edges.
const streamPattern = "GET /v1/clusters/{cluster}/stream"

// answering makes a handler of a function that returns an answer or a fault.
func answering(fn func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := fn(r)
		if err != nil {
			writeFault(w, err)
			return
		}
		writeJSON(w, answer)
	}
}

func noSuchRequest(w http.ResponseWriter, r *http.Request) {
	writeFault(w, fault.Newf(fault.CodeNotFound, "there is no %s %s", clip(r.Method, 16), clip(r.URL.Path, 128)))
}

func (ap *api) apiStatus(r *http.Request) (any, error) {
	only := r.URL.Query().Get("cluster")
	out := ap.statusOf(only)
	if only == "" {
		return out, nil
	}
	name, err := parseCluster(only)
	if err != nil {
		return nil, err
	}
	c, err := ap.clusters.get(name)
	if err != nil {
		return nil, err
	}
	out.Clusters = slices.DeleteFunc(out.Clusters, func(c admin.ClusterStatus) bool { return c.Name != only })
	for i := range out.Clusters {
		out.Clusters[i].Limits = c.accounts.Status()
		out.Clusters[i].Relay = c.relay.Status(true)
	}
	return out, nil
}

func parseCluster(s string) (id.Cluster, error) {
	c, err := id.ParseCluster(s)
	if err != nil {
		return c, fault.New(fault.CodeRequest, "the cluster's name is not usable").Because(err)
	}
	return c, nil
}

func (ap *api) apiCreateToken(r *http.Request) (any, error) {
	var q admin.TokenRequest
	if err := readJSON(r, limit.AdminBody, &q); err != nil {
		return nil, err
	}
	cluster, err := parseCluster(q.Cluster)
	if err != nil {
		return nil, err
	}
	ttl := time.Duration(q.TTLSeconds) * time.Second
	if q.TTLSeconds < 1 || q.TTLSeconds > int64(limit.TokenTTLMost/time.Second) {
		return nil, fault.Newf(fault.CodeRequest, "a token cannot live %ds", q.TTLSeconds).
			Whyf("1s to %v are possible", limit.TokenTTLMost)
	}
	if q.Uses < 1 || q.Uses > tokenUses {
		return nil, fault.Newf(fault.CodeRequest, "a token cannot have %d uses", q.Uses).
			Whyf("1 to %d are possible", tokenUses)
	}
	t, secret := trust.NewToken(cluster, ttl, q.Uses, ap.now())
	if t.Nodes, t.Node = q.Nodes || q.Node != "", q.Node; q.Node != "" {
		if _, err := id.ParseNode(q.Node); err != nil {
			return nil, fault.New(fault.CodeRequest, "the node's name is not usable").Because(err)
		}
		if q.Uses > 1 {
			return nil, fault.Newf(fault.CodeRequest, "a token for the node %s cannot have %d uses", q.Node, q.Uses).
				Whyf("a name is for one node")
		}
	}
	if err := ap.state.PutToken(t, ap.now()); err != nil {
		return nil, err
	}
	_, unknown := ap.clusters.get(cluster)
	ap.clusters.add(cluster)
	join := trust.Join{TokenID: t.ID, Secret: secret, Hubs: ap.advertise, Cluster: cluster,
		Pin: trust.Pin(ap.credentials.CA().Certificate())}.String()
	out := admin.Token{
		Meta: meta("Token"), ID: t.ID, Cluster: q.Cluster, Expires: t.Expires, Uses: q.Uses,
		Join: join, NewCluster: unknown != nil,
	}
	if !t.Nodes { // what a node needs beside the line, the hub does not know
		out.Command = "tombolo agent --join " + join
	}
	if ap.guessed {
		out.Warning = "the address in the line was guessed; start the hub with --advertise to set it"
	}
	ap.log.Info("token created", telemetry.AttrCluster, cluster, "token", t.ID, "uses", t.Uses, "expires", t.Expires)
	return out, nil
}

func (ap *api) apiTokens(*http.Request) (any, error) {
	tokens, err := ap.state.Tokens()
	if err != nil {
		return nil, err
	}
	out := admin.TokenList{Meta: meta("TokenList"), Tokens: []admin.TokenInfo{}}
	for _, t := range tokens {
		info := admin.TokenInfo{ID: t.ID, Cluster: t.Cluster, Created: t.Created, Expires: t.Expires, Uses: t.Uses,
			Used: len(t.Claims), Agents: []string{}, Nodes: t.Nodes, Node: t.Node}
		for _, c := range t.Claims {
			info.Agents = append(info.Agents, c.Agent)
		}
		out.Tokens = append(out.Tokens, info)
	}
	return out, nil
}

func (ap *api) apiDeleteToken(r *http.Request) (any, error) {
	return struct{}{}, ap.state.DeleteToken(r.PathValue("id"))
}

func (ap *api) apiCertificates(*http.Request) (any, error) {
	certs, err := ap.state.Certificates()
	if err != nil {
		return nil, err
	}
	out := admin.CertificateList{Meta: meta("CertificateList"), Certificates: []admin.CertificateInfo{}}
	for _, c := range certs {
		out.Certificates = append(out.Certificates, certificateInfo(c))
	}
	holders, err := ap.state.Holders()
	if err != nil {
		return nil, err
	}
	for _, n := range holders {
		out.Certificates = append(out.Certificates, holderInfo(n))
	}
	return out, nil
}

func holderInfo(n state.Holder) admin.CertificateInfo {
	return admin.CertificateInfo{Serial: n.Serial, Identity: n.Identity, Issued: n.Issued, Expires: n.Expires,
		Revoked: n.Revoked, Token: n.Token}
}

func certificateInfo(c state.Certificate) admin.CertificateInfo {
	return admin.CertificateInfo{Serial: c.Serial, Identity: c.Identity, Issued: c.Issued, Expires: c.Expires,
		Revoked: c.Revoked}
}

// apiSocket opens a cluster's unix socket and remembers it.
func (ap *api) apiSocket(r *http.Request) (any, error) {
	var q admin.SocketRequest
	if err := readJSON(r, limit.AdminBody, &q); err != nil {
		return nil, err
	}
	name, err := parseCluster(r.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	if _, err := ap.clusters.get(name); err != nil {
		return nil, err
	}
	if q.Protocol != ProtocolKonnectivity && q.Protocol != ProtocolConnect {
		return nil, fault.Newf(fault.CodeRequest, "there is no protocol %q", clip(q.Protocol, 32)).
			Whyf("%s and %s are possible", ProtocolKonnectivity, ProtocolConnect)
	}
	path, err := ap.sockets.Ensure(name, q.Protocol, &ap.settings.Load().sockets)
	if err != nil {
		return nil, err
	}
	if err := ap.state.AddSocket(name, q.Protocol, ap.now()); err != nil {
		return nil, err
	}
	return admin.Socket{Protocol: q.Protocol, Path: path}, nil
}

// apiPing measures the round trip to every agent of a cluster.
func (ap *api) apiPing(r *http.Request) (any, error) {
	name, err := parseCluster(r.PathValue("cluster"))
	if err != nil {
		return nil, err
	}
	c, err := ap.clusters.get(name)
	if err != nil {
		return nil, err
	}
	sessions := c.live()
	if len(sessions) == 0 {
		return nil, noAgent(name, c.agents(), ap.now())
	}
	out := admin.PingResult{Meta: meta("PingResult"), Cluster: name.String(),
		Agents: make([]admin.AgentPing, len(sessions))}
	g := run.NewGroup(r.Context())
	for i, s := range sessions {
		g.Do(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, limit.DeadLive)
			defer cancel()
			out.Agents[i].ID = s.agent.String()
			start := time.Now()
			if err := s.beat.Probe(ctx); err != nil {
				out.Agents[i].Fault = admin.BodyOf(fault.Newf(fault.CodeSessionLost, "agent %s does not answer", s.agent).
					Whyf("no answer within %v", limit.DeadLive))
				return
			}
			out.Agents[i].RTTMillis = float64(time.Since(start).Microseconds()) / 1000
		})
	}
	return out, g.Wait()
}

// Who asks for a stream through the admin API, as policy and records name it.
const (
	adminFrontend  = "admin"
	edgeFrontend   = "edge"
	operatorCaller = "operator"
)

// apiStream opens a stream for 'tombolo connect': after 101 the connection
// carries the stream's bytes.
func (ap *api) apiStream(w http.ResponseWriter, r *http.Request) {
	name, err := parseCluster(r.PathValue("cluster"))
	if err == nil && r.Header.Get("Upgrade") != admin.StreamProtocol {
		err = fault.New(fault.CodeRequest, "the request does not ask for a stream").
			Whyf("the header Upgrade: %s is missing", admin.StreamProtocol)
	}
	if err != nil {
		writeFault(w, err)
		return
	}
	asked, err := readRequest(r.URL.Query().Get("target"), r.Header)
	if err != nil {
		ap.record.RefusedRequest(ap.asker(r, name), wire.Peer{}, err)
		writeFault(w, err)
		return
	}
	stream, err := ap.dials.forCaller(ap.asker(r, name))(r.Context(), asked.dial())
	if err != nil {
		writeFault(w, err)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		stream.Reset(splice.ResetCode(fault.CodeDialCanceled))
		writeFault(w, fault.New(fault.CodeInternal, "take over the connection").Because(err))
		return
	}
	conn.SetDeadline(time.Time{})
	if err := admin.SwitchProtocols(conn); err != nil || buf.Reader.Buffered() > 0 {
		stream.Reset(splice.ResetCode(fault.CodeDialCanceled))
		conn.Close()
		return
	}
	ap.connect.spliceStream(r.Context(), conn, splice.Net(conn), stream)
}

func (ap *api) apiBackup(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := ap.state.Backup(w); err != nil {
		ap.log.Error("backup failed", telemetry.AttrReason, err)
		// The head is out; breaking the connection is the only way to say that it failed.
		panic(http.ErrAbortHandler)
	}
}

// asker is who asks for a stream: an edge with its identity, or an operator.
func (ap *api) asker(r *http.Request, c id.Cluster) record.Party {
	chain := peerOf(r.Context())
	if who, ours := ap.credentials.Authentic(chain); ours && who.Role == id.RoleEdge {
		return record.Party{
			Cluster: c, Frontend: edgeFrontend, Caller: who.URI(), Serial: trust.Serial(chain[0]), Source: r.RemoteAddr,
		}
	}
	return ap.operator(r, c)
}

// operator is which operator asks: over the admin port one with a certificate, over the
// admin socket a user of this machine who may open it.
func (p *parts) operator(r *http.Request, c id.Cluster) record.Party {
	who := record.Party{Cluster: c, Frontend: adminFrontend, Caller: operatorCaller}
	chain := peerOf(r.Context())
	if len(chain) == 0 {
		who.Peer, _ = r.Context().Value(socketPeerKey{}).(wire.Peer)
		return who
	}
	who.Serial, who.Source = trust.Serial(chain[0]), r.RemoteAddr
	if known, ours := p.credentials.Authentic(chain); ours {
		who.Operator = known.URI()
	}
	return who
}
