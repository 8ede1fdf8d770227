// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/dropin"
)

// Options are what the flags of the reference's agent say, under its names and with its defaults.
type Options struct {
	Logs dropin.Logs

	Cert, Key, CA string
	Hosts         []string // of servers
	Service       string   // whose endpoints are servers
	Port          int
	ALPN          []string
	Token         string // file

	HealthHost   string
	HealthPort   int
	AdminAddress string
	AdminPort    int
	Native       bool
	Profiles     dropin.Profiles

	AgentID, Identifiers      string
	Sync, SyncMost, Keepalive time.Duration
	SyncForever               bool
	keepaliveGiven            func() bool // not by its default

	CountLeases    bool
	LeaseNamespace string
	LeaseLabel     string
	CountSource    string
	Kubeconfig     string
}

// hosts is a flag that may be repeated; its type is that of the reference.
type hosts struct {
	all   *[]string
	given bool
}

func (h *hosts) String() string { return strings.Join(*h.all, ",") }
func (h *hosts) Type() string   { return "string" }
func (h *hosts) Set(s string) error {
	if !h.given {
		*h.all, h.given = nil, true
	}
	for host := range strings.SplitSeq(s, ",") {
		*h.all = append(*h.all, strings.TrimSpace(host))
	}
	return nil
}

// Flags adds them all. getenv is for the default of --agent-id.
func (o *Options) Flags(fl *pflag.FlagSet, getenv func(string) string) {
	o.Logs.Flags(fl)
	o.Hosts = []string{defaultHost}
	fl.Var(&hosts{all: &o.Hosts}, "proxy-server-host",
		"`HOST` of the server, or _service._proto.DOMAIN; may be repeated, and all addresses of each are used")
	fl.StringVar(&o.Service, "proxy-server-service", "",
		"`NAMESPACE/NAME[:PORT]` of a Service whose endpoints are servers too; not of the reference")
	fl.IntVar(&o.Port, "proxy-server-port", 8091, "port of the server")
	fl.StringVar(&o.Cert, "agent-cert", "", "`FILE` with the certificate shown to the server")
	fl.StringVar(&o.Key, "agent-key", "", "`FILE` with the key of --agent-cert")
	fl.StringVar(&o.CA, "ca-cert", "",
		"`FILE` with the CAs of the server's certificate; without it those of the system")
	fl.StringSliceVar(&o.ALPN, "alpn-proto", nil, "further protocols that are offered in TLS")
	fl.BoolVar(&o.Native, "native", true,
		"offer servers of Tombolo a protocol with flow control for each connection; not of the reference")
	fl.StringVar(&o.Token, "service-account-token-path", "",
		"`FILE` with the token shown to the server; read for each connection")
	fl.StringVar(&o.HealthHost, "health-server-host", "", "`ADDRESS` for probes and metrics; empty: all")
	fl.IntVar(&o.HealthPort, "health-server-port", 8093, "port for probes and metrics")
	fl.StringVar(&o.AdminAddress, "admin-bind-address", "127.0.0.1", "`ADDRESS` for profiles")
	fl.IntVar(&o.AdminPort, "admin-server-port", 8094, "port for profiles")
	fl.BoolVar(&o.Profiles.Enabled, "enable-profiling", false, "serve /debug/pprof on the admin port")
	fl.BoolVar(&o.Profiles.Contention, "enable-contention-profiling", false,
		"profile contention too; needs --enable-profiling")
	fl.StringVar(&o.AgentID, "agent-id", dropin.ID(getenv("PROXY_AGENT_ID")),
		"`ID` of this agent; the default is PROXY_AGENT_ID or a random one")
	fl.StringVar(&o.Identifiers, "agent-identifiers", "",
		"what is near: host=NAME&ipv4=ADDRESS&ipv6=ADDRESS&cidr=RANGE&default-route=true")
	fl.DurationVar(&o.Sync, "sync-interval", time.Second, "time between looks for further servers")
	fl.DurationVar(&o.SyncMost, "sync-interval-cap", 10*time.Second,
		"the most of --sync-interval while a server cannot be reached")
	fl.DurationVar(&o.Keepalive, "keepalive-time", time.Hour,
		"time between pings of a silent server; 35s unless it is given")
	o.keepaliveGiven = func() bool { return fl.Changed("keepalive-time") }
	fl.BoolVar(&o.SyncForever, "sync-forever", false,
		"look for further servers even if as many as there are were found")
	fl.BoolVar(&o.CountLeases, "count-server-leases", false, "count servers by their leases")
	fl.StringVar(&o.LeaseNamespace, "lease-namespace", "kube-system", "namespace of leases")
	fl.StringVar(&o.LeaseLabel, "lease-label", "k8s-app=konnectivity-server", "labels of leases")
	fl.StringVar(&o.LeaseLabel, "lease-label-selector", "k8s-app=konnectivity-server",
		"the same under the name in later versions; not of the reference")
	fl.StringVar(&o.CountSource, "server-count-source", "default",
		"which count of servers counts: default (leases if they are counted), or max of both")
	fl.StringVar(&o.Kubeconfig, "kubeconfig", "",
		"`FILE` for the API that has leases; without it a pod's own account")
	fl.Duration("probe-interval", time.Second, dropin.Ignored)
	fl.Int("xfr-channel-size", 150, dropin.Ignored)
	fl.Bool("warn-on-channel-limit", false, dropin.Ignored)
	fl.String("kube-api-content-type", "application/vnd.kubernetes.protobuf", dropin.Ignored)
}

// Meaningless are the flags that are taken and mean nothing.
func Meaningless() []string {
	return append(dropin.Meaningless(), "probe-interval", "xfr-channel-size", "warn-on-channel-limit",
		"kube-api-content-type")
}

// check refuses what the reference refuses.
func (o Options) check() error {
	bad := func(what, hint string) error { return fault.New(fault.CodeUsage, what).Hint("%s", hint) }
	near, err := url.ParseQuery(o.Identifiers)
	switch {
	case (o.Cert == "") != (o.Key == ""):
		return bad("a certificate comes without its key, or a key without its certificate",
			"give --agent-cert with --agent-key")
	case o.Port <= 0 || o.Port > 65535:
		return bad("--proxy-server-port is no port", "give one from 1 to 65535")
	case o.Profiles.Contention && !o.Profiles.Enabled:
		return bad("--enable-contention-profiling needs --enable-profiling", "give both, or none")
	case o.Sync > o.SyncMost || o.Sync < 0 || o.SyncMost <= 0:
		return bad("--sync-interval is more than --sync-interval-cap, or below 0", "correct one of them")
	case err != nil:
		return bad("--agent-identifiers cannot be read", "write them as host=NAME&ipv4=ADDRESS")
	case o.CountSource != "" && o.CountSource != "default" && o.CountSource != "max":
		return bad("--server-count-source is neither default nor max", "correct it")
	}
	for kind := range near {
		if !slices.Contains([]string{"ipv4", "ipv6", "cidr", "host", "default-route"}, kind) {
			return fault.Newf(fault.CodeUsage, "there is no identifier %q", kind).
				Hint("--agent-identifiers takes host, ipv4, ipv6, cidr and default-route")
		}
	}
	if o.CountLeases {
		if _, err := dropin.Labels(o.LeaseLabel); err != nil {
			return err
		}
	}
	if o.Service != "" {
		_, err = parseService(o.Service)
	}
	return err
}
