// SPDX-License-Identifier: Apache-2.0

// Package telemetry has the logger, and the names of log attributes and metrics
// (docs/reference/metrics.md). It bounds the log, keeps no other state, and opens no port.
package telemetry

import (
	"io"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Attribute names of log records.
const (
	AttrCluster = "cluster"
	AttrAgent   = "agent"
	AttrNode    = "node"
	AttrPeer    = "peer"   // transport address
	AttrCode    = "code"   // fault code
	AttrReason  = "reason" // why, as text
	AttrCause   = "cause"  // why a connection was lost, a word of the carrier's
	AttrTarget  = "target"
	AttrCaller  = "caller"

	AttrIdentity = "identity" // SPIFFE URI
)

// BuildInfo is the metric that names the version.
const BuildInfo = "tombolo_build_info"

// Logger makes the logger of a role; format is text or json, level as in slog. It bounds
// the lines that peers can cause, see bounded.
func Logger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if level != "" {
		if err := l.UnmarshalText([]byte(level)); err != nil {
			return nil, fault.Newf(fault.CodeUsage, "log level %q", level).Whyf("it is none of debug, info, warn, error").
				Hint("correct --log-level or log.level")
		}
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "", "text":
		return slog.New(newBounded(slog.NewTextHandler(w, o))), nil
	case "json":
		return slog.New(newBounded(slog.NewJSONHandler(w, o))), nil
	}
	return nil, fault.Newf(fault.CodeUsage, "log format %q", format).Whyf("it is neither text nor json").
		Hint("correct --log-format or log.format")
}

// Outcome is a fault code as a label value: "ok" for none, "other" for an unknown code of
// a peer, so that a peer cannot create series.
func Outcome(code fault.Code) string {
	if code == "" {
		return "ok"
	}
	for _, e := range fault.Table() {
		if e.Code == code {
			return string(code)
		}
	}
	return "other"
}

// Hub are the hub's metrics. None has a label with more than a few dozen
// values: figures per cluster are in 'tombolo status'.
type Hub struct {
	Attaches     *prometheus.CounterVec // outcome
	Losses       *prometheus.CounterVec // cause
	Sessions     prometheus.Counter
	SessionEnds  *prometheus.CounterVec // reason
	Joins        *prometheus.CounterVec // outcome
	Streams      prometheus.Gauge
	Dials        *prometheus.CounterVec   // frontend, outcome
	DialDuration *prometheus.HistogramVec // frontend
	BackendDials *prometheus.CounterVec   // backend, outcome
	StreamEnds   *prometheus.CounterVec   // code
	RTT          prometheus.Histogram
	Reloads      *prometheus.CounterVec // outcome
	Refused      *prometheus.CounterVec // code

	PolicyReloads *prometheus.CounterVec // outcome

	Limits *prometheus.CounterVec // scope, limit

	RelayEnds *prometheus.CounterVec // reason
	Shed      prometheus.Counter
}

// HubReadings are read when metrics are scraped.
type HubReadings struct {
	Sessions, Clusters, ClustersConnected func() float64
	BytesToCluster, BytesFromCluster      func() float64
	ClientCertificateEnd                  func() float64 // Unix seconds of the earliest end, 0 if there is none
	Connections, Unread                   func() float64
	PolicyFiles, PolicyRules              func() float64
	MemoryUsed, MemoryLimit               func() float64
	LimitUse                              func(limit string) float64
	RelayNodes, RelayPackets, RelayBytes  func() float64
	RelayRefused                          func() float64
	RelayDropped                          func(reason string) float64
	WireGuardClusters, WireGuardFree      func() float64
}

// NewHub registers the hub's metrics.
func NewHub(reg prometheus.Registerer, r HubReadings) *Hub {
	f := factory{reg}
	f.gaugeFunc("tombolo_hub_sessions", "Agent sessions that are live.", r.Sessions)
	f.gaugeFunc("tombolo_hub_clusters", "Clusters that are registered.", r.Clusters)
	f.gaugeFunc("tombolo_hub_clusters_connected", "Clusters with at least one live session.", r.ClustersConnected)
	f.gaugeFunc("tombolo_hub_client_certificate_expiry_timestamp_seconds",
		"When the first client certificate in use ends, as a Unix time; 0 if there is none.", r.ClientCertificateEnd)
	f.counterFunc("tombolo_hub_bytes_to_cluster_total", "Bytes carried from callers into clusters.", r.BytesToCluster)
	f.counterFunc("tombolo_hub_bytes_from_cluster_total", "Bytes carried out of clusters to callers.", r.BytesFromCluster)
	f.gaugeFunc("tombolo_hub_session_connections", "Connections of the sessions that are live.", r.Connections)
	f.gaugeFunc("tombolo_hub_unread_bytes", "Bytes that came from agents and were not read yet.", r.Unread)
	f.gaugeFunc("tombolo_hub_policy_files", "Files of the access policy in force.", r.PolicyFiles)
	f.gaugeFunc("tombolo_hub_policy_rules", "Rules of the access policy in force.", r.PolicyRules)
	f.gaugeFunc("tombolo_hub_memory_used_bytes", "Memory in use, without what the collector may free.", r.MemoryUsed)
	f.gaugeFunc("tombolo_hub_memory_limit_bytes", "Memory that may be in use; 0 without a limit.", r.MemoryLimit)
	f.gaugeFuncs("tombolo_hub_limit_use_ratio",
		"The greatest use of a limit by any cluster, agent or caller, as a share of it.", "limit", limits(), r.LimitUse)
	f.gaugeFunc("tombolo_hub_wireguard_clusters", "Clusters that are on in the WireGuard network.", r.WireGuardClusters)
	f.gaugeFunc("tombolo_hub_wireguard_addresses_free", "Addresses of the WireGuard range that no cluster has.",
		r.WireGuardFree)
	f.gaugeFunc("tombolo_hub_relay_nodes", "Nodes that are connected to the relay.", r.RelayNodes)
	f.counterFunc("tombolo_hub_relay_refused_nodes_total", "Connections of nodes that the relay refused for lack of room.",
		r.RelayRefused)
	f.counterFunc("tombolo_hub_relay_packets_total", "Packets that the relay passed on.", r.RelayPackets)
	f.counterFunc("tombolo_hub_relay_bytes_total", "Bytes of packets that the relay passed on.", r.RelayBytes)
	f.counterFuncs("tombolo_hub_relay_dropped_packets_total", "Packets that the relay dropped, by reason.",
		"reason", relayDrops(), r.RelayDropped)
	h := &Hub{
		RelayEnds: f.counterVec("tombolo_hub_relay_ends_total",
			"Connections of nodes to the relay that ended, by reason (a fault code, or ok where the node closed).", "reason"),
		Attaches: f.counterVec("tombolo_hub_connections_added_total",
			"Further connections of sessions, by outcome (ok or a fault code).", "outcome"),
		Losses: f.counterVec("tombolo_hub_connections_lost_total", "Connections that live sessions lost, by cause.",
			"cause"),
		Sessions: f.counter("tombolo_hub_sessions_total", "Agent sessions that were accepted."),
		SessionEnds: f.counterVec("tombolo_hub_session_ends_total",
			"Sessions that ended, by reason (a fault code, or ok for an orderly end).", "reason"),
		Joins:   f.counterVec("tombolo_hub_joins_total", "Enrolments and renewals, by outcome.", "kind", "outcome"),
		Streams: f.gauge("tombolo_hub_streams", "Streams that are live."),
		Dials: f.counterVec("tombolo_hub_dials_total", "Dials, by frontend and outcome (ok or a fault code).",
			"frontend", "outcome"),
		DialDuration: f.histogramVec("tombolo_hub_dial_duration_seconds", "Time from a dial request to its answer.",
			"frontend"),
		BackendDials: f.counterVec("tombolo_hub_backend_dials_total",
			"Dials that were to be carried, by backend (agents, or a proxy) and outcome.", "backend", "outcome"),
		StreamEnds: f.counterVec("tombolo_hub_stream_ends_total",
			"Streams that ended, by fault code (ok for an orderly end).", "code"),
		RTT: f.histogram("tombolo_hub_session_rtt_seconds", "Round trip of the pings on live sessions."),
		Reloads: f.counterVec("tombolo_hub_config_reloads_total", "Reloads of the configuration, by outcome.",
			"outcome"),
		Refused: f.counterVec("tombolo_hub_refused_connections_total",
			"Connections and requests that were refused without a dial, by fault code.", "code"),

		Limits: f.counterVec("tombolo_hub_limit_hits_total",
			"Times that a limit refused something or delayed bytes, by the limit's scope.", "scope", "limit"),
		Shed: f.counter("tombolo_hub_memory_shed_streams_total",
			"Streams that were cut because the hub was short of memory."),

		PolicyReloads: f.counterVec("tombolo_hub_policy_reloads_total", "Changes of the access policy, by outcome.",
			"outcome"),
	}
	for _, scope := range scopes() {
		for _, l := range append(limits(), "memory") {
			h.Limits.WithLabelValues(scope, l)
		}
	}
	h.BackendDials.WithLabelValues("agents", Outcome(""))
	h.Attaches.WithLabelValues(Outcome(""))      // a session may never need one
	h.PolicyReloads.WithLabelValues(Outcome("")) // nor a hub a policy
	begin(h.Losses, causes())
	h.RelayEnds.WithLabelValues(Outcome("")) // a hub may have no nodes
	return h
}

// relayDrops are the reasons for which the relay drops a packet.
func relayDrops() []string { return []string{"queue", "rate", "absent", "foreign"} }

// scopes and limits are the values of the labels scope and limit.
func scopes() []string { return []string{"cluster", "agent", "caller"} }

func limits() []string {
	return []string{"sessions", "streams", "pendingDials", "dialsPerSecond", "bytesInPerSecond", "bytesOutPerSecond",
		"unreadBytes"}
}

// causes are the values of the label cause, as the carrier names them.
func causes() []string { return []string{"left", "silent", "broken", "violation"} }

// begin makes a counter's series, so that its first count is seen as an increase.
func begin(c *prometheus.CounterVec, values []string) {
	for _, v := range values {
		c.WithLabelValues(v)
	}
}

// Agent are the agent's metrics.
type Agent struct {
	Attaches     *prometheus.CounterVec // outcome
	Losses       *prometheus.CounterVec // cause
	Connects     *prometheus.CounterVec // outcome
	SessionEnds  *prometheus.CounterVec // reason
	Streams      prometheus.Gauge
	Dials        *prometheus.CounterVec // outcome
	DialDuration prometheus.Histogram
	StreamEnds   *prometheus.CounterVec // code
	RTT          prometheus.Histogram
	Renewals     *prometheus.CounterVec // outcome
	Ports        *prometheus.CounterVec // port, outcome
}

// AgentReadings are read when metrics are scraped.
type AgentReadings struct {
	Sessions                     func() float64
	BytesToTarget, BytesToCaller func() float64
	CertificateEnd               func() float64
	Connections, Unread          func() float64
}

// NewAgent registers the agent's metrics.
func NewAgent(reg prometheus.Registerer, r AgentReadings) *Agent {
	f := factory{reg}
	f.gaugeFunc("tombolo_agent_sessions", "Sessions to hubs that are live.", r.Sessions)
	f.gaugeFunc("tombolo_agent_certificate_expiry_timestamp_seconds", "When the agent's certificate ends, as a Unix time.",
		r.CertificateEnd)
	f.counterFunc("tombolo_agent_bytes_to_target_total", "Bytes carried from the hub to targets.", r.BytesToTarget)
	f.counterFunc("tombolo_agent_bytes_from_target_total", "Bytes carried from targets to the hub.", r.BytesToCaller)
	f.gaugeFunc("tombolo_agent_session_connections", "Connections of the sessions that are live.", r.Connections)
	f.gaugeFunc("tombolo_agent_unread_bytes", "Bytes that came from hubs and were not read yet.", r.Unread)
	a := &Agent{
		Attaches: f.counterVec("tombolo_agent_connections_added_total",
			"Further connections of sessions, by outcome (ok or a fault code).", "outcome"),
		Losses: f.counterVec("tombolo_agent_connections_lost_total", "Connections that live sessions lost, by cause.",
			"cause"),
		SessionEnds: f.counterVec("tombolo_agent_session_ends_total", "Sessions that ended, by reason (a fault code).",
			"reason"),
		Connects: f.counterVec("tombolo_agent_connects_total",
			"Attempts to reach a hub, by outcome (ok or a fault code).", "outcome"),
		Streams: f.gauge("tombolo_agent_streams", "Streams that are live."),
		Dials: f.counterVec("tombolo_agent_dials_total", "Dials to targets, by outcome (ok or a fault code).",
			"outcome"),
		DialDuration: f.histogram("tombolo_agent_dial_duration_seconds", "Time from a dial request to its answer."),
		StreamEnds: f.counterVec("tombolo_agent_stream_ends_total",
			"Streams that ended, by fault code (ok for an orderly end).", "code"),
		RTT:      f.histogram("tombolo_agent_session_rtt_seconds", "Round trip of the pings on live sessions."),
		Renewals: f.counterVec("tombolo_agent_renewals_total", "Renewals of the certificate, by outcome.", "outcome"),
		Ports: f.counterVec("tombolo_agent_port_connections_total",
			"Connections to ports of the hub, by port and outcome (ok or a fault code).", "port", "outcome"),
	}
	a.Attaches.WithLabelValues(Outcome(""))
	begin(a.Losses, causes())
	return a
}

type factory struct{ reg prometheus.Registerer }

func (f factory) add(c prometheus.Collector) { f.reg.MustRegister(c) }

func (f factory) gaugeFunc(name, help string, read func() float64) {
	f.add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// gaugeFuncs registers one gauge for each value of a label.
func (f factory) gaugeFuncs(name, help, label string, values []string, read func(value string) float64) {
	for _, v := range values {
		f.add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: name, Help: help, ConstLabels: prometheus.Labels{label: v},
		}, func() float64 { return read(v) }))
	}
}

func (f factory) counterFunc(name, help string, read func() float64) {
	f.add(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}

// counterFuncs registers one counter for each value of a label.
func (f factory) counterFuncs(name, help, label string, values []string, read func(value string) float64) {
	for _, v := range values {
		f.add(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: name, Help: help, ConstLabels: prometheus.Labels{label: v},
		}, func() float64 { return read(v) }))
	}
}

func (f factory) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	f.add(c)
	return c
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	c := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	f.add(c)
	return c
}

func (f factory) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	f.add(g)
	return g
}

func (f factory) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	f.add(c)
	return c
}

// buckets reach from a loopback round trip to the longest dial.
func buckets() []float64 {
	return []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
}

func (f factory) histogram(name, help string) prometheus.Histogram {
	c := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets()})
	f.add(c)
	return c
}

func (f factory) histogramVec(name, help string, labels ...string) *prometheus.HistogramVec {
	c := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets()}, labels)
	f.add(c)
	return c
}
