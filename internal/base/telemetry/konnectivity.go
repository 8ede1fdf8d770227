// SPDX-License-Identifier: Apache-2.0

package telemetry

import "github.com/prometheus/client_golang/prometheus"

// KonnectivityServer are the metrics of the server of kubernetes-sigs/apiserver-network-proxy, under its names: who
// has swapped it keeps dashboards and alerts. Every series exists from the start.
type KonnectivityServer struct {
	Dials, FrontendWrites prometheus.Histogram
	Streams               *prometheus.GaugeVec // service_method
	Connects              prometheus.Gauge
	Waiting               *prometheus.GaugeVec   // service_method
	DialFailures          *prometheus.CounterVec // reason
	Packets               *prometheus.CounterVec // segment, packet_type
	Errors                *prometheus.CounterVec // segment, code, packet_type
	Culled                prometheus.Counter
	LeaseDeletes          *prometheus.CounterVec   // http_status_code, reason
	LeaseDeleteSeconds    *prometheus.HistogramVec // http_status_code
	LeaseLists            *prometheus.CounterVec   // http_status_code, reason
	LeaseListSeconds      *prometheus.HistogramVec // http_status_code
	Reviews               *prometheus.CounterVec   // outcome; ours
	Refused               *prometheus.CounterVec   // code; ours
}

// KonnectivityAgent are those of its agent.
type KonnectivityAgent struct {
	Dials            prometheus.Histogram
	ServerFailures   *prometheus.CounterVec // direction
	DialFailures     *prometheus.CounterVec // reason
	Servers, Wanted  prometheus.Gauge
	Connections      prometheus.Gauge
	Packets          *prometheus.CounterVec   // segment, packet_type
	Errors           *prometheus.CounterVec   // segment, code, packet_type
	LeaseLists       *prometheus.CounterVec   // http_response_code, reason
	LeaseWatches     *prometheus.CounterVec   // http_response_code, reason
	LeaseListSeconds *prometheus.HistogramVec // http_response_code
}

// KonnectivityGauges are values of the server that are read when they are asked for.
type KonnectivityGauges struct {
	Strategies                    []string
	Ready                         func(strategy string) float64
	Tunnels, Pending, Established func() float64
}

const (
	konnectivityServer = "konnectivity_network_proxy_server_"
	konnectivityAgent  = "konnectivity_network_proxy_agent_"
	helpPackets        = "Count of packets processed, by segment and packet type (example: from_client, DIAL_REQ)"
	helpErrors         = "Count of gRPC stream errors, by segment, grpc Code, packet type. " +
		"(example: from_agent, Code.Unavailable, DIAL_RSP)"
	helpDial = "Latency of dial to the remote endpoint in seconds"
)

// The buckets are the reference's.
func konnectivityServerBuckets() []float64 {
	return []float64{0.000001, 0.00001, 0.0001, 0.005, 0.025, 0.1, 0.5, 2.5, 12.5}
}

func konnectivityAgentBuckets() []float64 { return []float64{0.005, 0.025, 0.1, 0.5, 2.5, 10, 30} }

func (f factory) histogramOf(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	f.add(h)
	return h
}

func (f factory) histogramBy(name, help string, buckets []float64, label string) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{label})
	f.add(h)
	return h
}

// NewKonnectivityServer registers them. segments and kinds are those of packets.
func NewKonnectivityServer(reg prometheus.Registerer, segments, kinds []string, g KonnectivityGauges,
) *KonnectivityServer {
	f := factory{reg}
	const p = konnectivityServer
	f.gaugeFunc(p+"ready_backend_connections", "Number of konnectivity agent connected to the proxy server. "+
		"DEPRECATED, please use ready_backends", g.Tunnels)
	f.gaugeFuncs(p+"ready_backends", "Number of konnectivity agent connected to the proxy server", "proxy_strategy",
		g.Strategies, g.Ready)
	f.gaugeFunc(p+"pending_backend_dials", "Current number of pending backend dial requests", g.Pending)
	f.gaugeFunc(p+"established_connections", "Current number of established end-to-end connections (post-dial).",
		g.Established)
	m := &KonnectivityServer{
		Dials: f.histogramOf(p+"dial_duration_seconds", helpDial, konnectivityServerBuckets()),
		FrontendWrites: f.histogramOf(p+"frontend_write_duration_seconds", "Latency of write to the frontend in seconds",
			konnectivityServerBuckets()),
		Streams: f.gaugeVec(p+"grpc_connections", "Number of current grpc connections, partitioned by service method.",
			"service_method"),
		Connects: f.gauge(p+"http_connections", "Number of current HTTP CONNECT connections"),
		Waiting: f.gaugeVec(p+"full_receive_channels", "Number of current connections blocked by a full receive channel, "+
			"partitioned by service method.", "service_method"),
		DialFailures: f.counterVec(p+"dial_failure_count",
			"Number of dial failures observed. Multiple failures can occur for a single dial request.", "reason"),
		Packets: f.counterVec(p+"stream_packets_total", helpPackets, "segment", "packet_type"),
		Errors:  f.counterVec(p+"stream_errors_total", helpErrors, "segment", "code", "packet_type"),
		Culled: f.counter(p+"culled_leases_count",
			"Count of expired leases that the lease garbage collection controller has culled."),
		LeaseDeletes: f.counterVec(p+"lease_delete_total", "Count of lease delection calls by the garbage collection "+
			"controller. Labeled by HTTP status code and reason.", "http_status_code", "reason"),
		LeaseDeleteSeconds: f.histogramBy(p+"lease_delete_latency_seconds",
			"Latency of lease deletion calls by the garbage collection controller in seconds.", nil, "http_status_code"),
		LeaseLists: f.counterVec(p+"lease_list_total", "Count of lease deletion calls by the garbage collection "+
			"controller. Labeled by HTTP status code and reason.", "http_status_code", "reason"),
		LeaseListSeconds: f.histogramBy(p+"lease_list_latency_seconds",
			"Latency of lease list calls by the garbage collection controller in seconds.", nil, "http_status_code"),
		Reviews: f.counterVec("tombolo_konnectivity_token_reviews_total",
			"Reviews of the tokens of connected agents, by outcome.", "outcome"),
		Refused: f.counterVec("tombolo_konnectivity_refused_agents_total",
			"Agents that were refused when they connected, by fault code.", "code"),
	}
	for _, method := range []string{"Proxy", "Connect"} {
		m.Streams.WithLabelValues(method)
		m.Waiting.WithLabelValues(method)
	}
	m.LeaseDeletes.WithLabelValues("200", "")
	m.LeaseDeleteSeconds.WithLabelValues("200")
	m.LeaseLists.WithLabelValues("200", "")
	m.LeaseListSeconds.WithLabelValues("200")
	zeroPackets(m.Packets, m.Errors, segments, kinds)
	return m
}

func zeroPackets(packets, failures *prometheus.CounterVec, segments, kinds []string) {
	for _, s := range segments {
		for _, k := range kinds {
			packets.WithLabelValues(s, k)
		}
		failures.WithLabelValues(s, "Unavailable", "Unknown")
	}
}

// NewKonnectivityAgent registers them.
func NewKonnectivityAgent(reg prometheus.Registerer, segments, kinds []string) *KonnectivityAgent {
	f := factory{reg}
	const p = konnectivityAgent
	m := &KonnectivityAgent{
		Dials: f.histogramOf(p+"dial_duration_seconds", helpDial, konnectivityAgentBuckets()),
		ServerFailures: f.counterVec(p+"server_connection_failure_count", "Count of failures to send to or receive from "+
			"the proxy server, labeled by the direction (from_server or to_server). "+
			"DEPRECATED, please use stream_events_error_total", "direction"),
		DialFailures: f.counterVec(p+"endpoint_dial_failure_total",
			"Number of failures dialing the remote endpoint, by reason (example: timeout).", "reason"),
		Servers:     f.gauge(p+"open_server_connections", "Current number of open server connections."),
		Wanted:      f.gauge(p+"known_server_count", "Current number of servers agent is trying to connect to."),
		Connections: f.gauge(p+"open_endpoint_connections", "Current number of open endpoint connections."),
		Packets:     f.counterVec(p+"stream_packets_total", helpPackets, "segment", "packet_type"),
		Errors:      f.counterVec(p+"stream_errors_total", helpErrors, "segment", "code", "packet_type"),
		LeaseLists: f.counterVec(p+"lease_lists_total", "Count of server lease list calls made by the agent to the k8s "+
			"apiserver, labeled by HTTP response code and reason", "http_response_code", "reason"),
		LeaseWatches: f.counterVec(p+"lease_watches_total", "Count of server lease watch calls made by the agent to the k8s "+
			"apiserver, labeled by HTTP response code and reason", "http_response_code", "reason"),
		LeaseListSeconds: f.histogramBy(p+"lease_list_latency_seconds", "Latency of server lease listing in seconds",
			konnectivityAgentBuckets(), "http_response_code"),
	}
	for _, direction := range []string{"to_server", "from_server"} {
		m.ServerFailures.WithLabelValues(direction)
	}
	m.LeaseLists.WithLabelValues("200", "")
	m.LeaseWatches.WithLabelValues("200", "")
	m.LeaseListSeconds.WithLabelValues("200")
	zeroPackets(m.Packets, m.Errors, segments, kinds)
	return m
}
