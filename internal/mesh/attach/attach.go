// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/access/enrol"
	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/proxy"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/mesh/relay"
)

// Config says which node this is and where its hubs are.
type Config struct {
	StateDir string // identity.json is there; whoever runs the node holds its lock
	Node     string // node.name, which the certificate has, too
	// Join is a join line, or what Options.ReadJoin makes one of. Empty: there is none.
	Join  string
	Hubs  []string     // host:port, instead of those of the line
	Proxy proxy.Choose // nil: hubs are reached without one
	Mark  uint32       // of the sockets, so that nothing of them goes through the mesh; 0: none
}

// Options are what is needed beside the configuration. Log and Reg are; the functions
// may be called by several goroutines at once, and must not wait.
type Options struct {
	Log *slog.Logger
	Reg prometheus.Registerer
	Now func() time.Time // the clock for certificates; nil means time.Now
	// ReadJoin resolves Config.Join, which may name a file; nil takes it as the line.
	ReadJoin func(string) (string, error)
	// Control is called with each socket before it connects; nil sets Config.Mark. If it
	// fails the connection is made all the same, and the status says so.
	Control func(network, address string, c syscall.RawConn) error
	Changed func() // Cluster or Hubs give another answer
}

// Attach is a node at its hubs.
type Attach struct {
	cfg      Config
	o        Options
	log      *slog.Logger
	now      func() time.Time
	client   *relay.Client
	metrics  *telemetry.MeshRelay
	unmarked sync.Once

	mu     sync.Mutex
	me     *enrol.Identity // nil before there is a key
	line   *trust.Join     // nil: none
	spent  *trust.Join     // the line that a hub has refused for good
	hubs   []string        // instead of the line's
	barred *fault.Fault    // why a hub does not want the identity any more
	last   *fault.Fault    // why there is no certificate, or no newer one
	mark   *fault.Fault    // why sockets bear no mark
	turn   context.CancelFunc
}

// Open reads the identity, and judges it by the configuration. It asks nobody.
func Open(cfg Config, o Options) (*Attach, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.ReadJoin == nil {
		o.ReadJoin = func(line string) (string, error) { return line, nil }
	}
	me, err := enrol.Load(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	a := &Attach{cfg: cfg, o: o, log: o.Log, now: o.Now, me: me, hubs: slices.Clone(cfg.Hubs)}
	if a.line, err = a.readLine(cfg.Join); err != nil {
		return nil, err
	}
	if err := judge(cfg, me, a.line); err != nil {
		return nil, err
	}
	a.client = relay.New(relay.Config{
		Dial: a.dialRelay, TLS: a.tls, Log: o.Log, Changed: a.changed, Tried: a.tried, Ended: a.ended, Random: rand.Float64,
	})
	a.metrics = telemetry.NewMeshRelay(o.Reg, a.readings())
	if me.Joined() {
		a.client.Use(a.Addresses())
		a.log.Info("using the stored identity", "identity", me.Who.URI(), "certificateEnd", me.Cert.NotAfter)
	}
	return a, nil
}

// readLine reads the join line, nil if there is none. A node that has joined needs none:
// people remove a secret that has been used.
func (a *Attach) readLine(from string) (*trust.Join, error) {
	if from == "" {
		return nil, nil
	}
	text, err := a.o.ReadJoin(from)
	if a.identity().Joined() && (err != nil || text == "") {
		a.log.Info("the join line is not there any more; the stored identity does without")
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	j, err := trust.ParseJoin(text)
	if err != nil {
		return nil, err
	}
	return &j, nil
}

// Enabled says whether the node has, or may get, a certificate: without one there is no relay.
func (a *Attach) Enabled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.line != nil || a.me.Joined()
}

// Ready says whether a relay can be used.
func (a *Attach) Ready() bool { return a.client.Totals().Connected > 0 }

// Cluster is the name of the cluster of the certificate; empty without one.
func (a *Attach) Cluster() string {
	if me := a.identity(); me.Joined() {
		return me.Who.Cluster.String()
	}
	return ""
}

// Named is the identity of a node of this cluster in its certificate, as policies name
// callers: hubs lead packets among nodes of one cluster. It is empty without a certificate.
func (a *Attach) Named(node string) string {
	me := a.identity()
	if !me.Joined() {
		return ""
	}
	who := me.Who
	who.Role, who.Name = roleNode, node
	if _, err := id.ParseURI(who.URI()); err != nil {
		return ""
	}
	return who.URI()
}

// Hubs are the names of the hubs at which this node is: at most limit.RelayHubs, in the
// order of their addresses. A break of less than relayStable of package relay changes nothing.
func (a *Attach) Hubs() []string { return a.client.Names() }

// Addresses are those of the hubs, host:port: the configured ones, else those of the
// join line, which may be newer than those that were stored.
func (a *Attach) Addresses() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case len(a.hubs) > 0:
		return slices.Clone(a.hubs)
	case a.line != nil:
		return slices.Clone(a.line.Hubs)
	case a.me != nil:
		return slices.Clone(a.me.Hubs)
	}
	return nil
}

// Send passes datagrams to a peer, by the name of its certificate, by a hub, and says
// how many were taken. It never waits.
func (a *Attach) Send(hub, peer string, datagrams ...[]byte) int {
	return a.client.Send(hub, peer, datagrams...)
}

// Reload takes over another join line and other addresses of hubs, and has what was
// refused tried again. If it fails nothing is changed.
func (a *Attach) Reload(next Config) error {
	line, err := a.readLine(next.Join)
	if err != nil {
		return err
	}
	me := a.identity()
	if err := judge(Config{StateDir: a.cfg.StateDir, Node: a.cfg.Node, Hubs: next.Hubs}, me, line); err != nil {
		return err
	}
	a.mu.Lock()
	a.line, a.hubs = line, slices.Clone(next.Hubs)
	if !me.Joined() {
		a.last = nil // of a line that may be gone
	}
	a.mu.Unlock()
	if me.Joined() {
		a.client.Use(a.Addresses())
	}
	a.again()
	return nil
}

func (a *Attach) identity() *enrol.Identity {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.me
}

// enrolment asks hubs for the node's certificate.
func (a *Attach) enrolment() enrol.Client {
	return enrol.Client{
		Dial: func(ctx context.Context, _, address string) (net.Conn, error) { return a.dial(ctx, address) },
		Now:  a.now, Log: a.log, Role: string(roleNode), Node: a.cfg.Node,
	}
}

// tls is for a connection to the relay that begins.
func (a *Attach) tls() (*tls.Config, error) {
	me := a.identity()
	switch {
	case !me.Joined():
		return nil, fault.New(fault.CodeCertInvalid, "this node has no certificate yet")
	case !a.now().Before(me.Cert.NotAfter):
		return nil, fault.New(fault.CodeCertExpired, "the node's certificate has run out").
			Whyf("it ended at %s", me.Cert.NotAfter.UTC().Format(time.RFC3339)).
			Hint("it is renewed by itself when a hub is reached; look at the status and at this machine's clock")
	}
	return trust.HubClientConfig(me.Check(a.now), me.TLS(), trust.ALPNRelay), nil
}

func (a *Attach) changed() {
	if a.o.Changed != nil {
		a.o.Changed()
	}
}

// tried is called after each attempt to connect to the relay.
func (a *Attach) tried(f *fault.Fault) {
	a.metrics.Connects.WithLabelValues(outcome(f)).Inc()
	a.heard(f)
}

func (a *Attach) ended(f *fault.Fault) {
	a.metrics.Ends.WithLabelValues(outcome(f)).Inc()
	a.heard(f)
}

// heard notes whether hubs want the identity.
func (a *Attach) heard(f *fault.Fault) {
	if f != nil && f.Code != fault.CodeCertRevoked {
		return
	}
	a.mu.Lock()
	news := (a.barred == nil) != (f == nil)
	a.barred = f
	a.mu.Unlock()
	if news {
		a.again()
	}
}

// Again has the connections to the relay made again, and tries at once what waits: a
// join or a renewal. It is for a machine that slept, or has other addresses now.
func (a *Attach) Again() {
	a.client.Renew()
	a.again()
}

// again ends what the loop waits for, so that it decides again.
func (a *Attach) again() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turn != nil {
		a.turn()
	}
}

func outcome(f *fault.Fault) string {
	if f == nil {
		return telemetry.Outcome("")
	}
	return telemetry.Outcome(f.Code)
}
