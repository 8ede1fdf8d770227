// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/tls"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tombolo-io/tombolo/internal/base/conf"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity"
	"github.com/tombolo-io/tombolo/internal/stream/konnectivity/dropin"
)

// The modes of the frontend.
const (
	ModeGRPC    = "grpc"
	ModeConnect = "http-connect"
)

// Options are what the flags of the reference's server say, under its names and with its defaults.
type Options struct {
	Logs dropin.Logs

	ServerCert, ServerKey, ServerCA    string
	ClusterCert, ClusterKey, ClusterCA string
	Mode, Socket                       string
	ReplaceSocket                      bool
	ServerPort, AgentPort              int
	Native                             bool
	HealthPort, AdminPort              int
	ServerAddress, AgentAddress        string
	HealthAddress, AdminAddress        string
	Keepalive, FrontendKeepalive       time.Duration
	Profiles                           dropin.Profiles

	ServerID    string
	ServerCount int

	AgentNamespace, AgentServiceAccount, Audience string
	Kubeconfig                                    string

	Strategies   string
	CipherSuites []string
	MinTLS       string
	Drain        time.Duration
	DialTimeout  time.Duration

	Leases         bool
	LeaseNamespace string
	LeaseLabel     string
	keepaliveGiven func() bool // not by its default
}

// Flags adds them all. getenv is for the default of --server-id.
func (o *Options) Flags(fl *pflag.FlagSet, getenv func(string) string) {
	o.Logs.Flags(fl)
	o.listening(fl)
	fl.StringVar(&o.ServerCert, "server-cert", "", "`FILE` with the certificate shown to kube-apiserver")
	fl.StringVar(&o.ServerKey, "server-key", "", "`FILE` with the key of --server-cert")
	fl.StringVar(&o.ServerCA, "server-ca-cert", "",
		"`FILE` with the CAs of kube-apiserver's certificates; needed without --uds-name")
	fl.StringVar(&o.ClusterCert, "cluster-cert", "", "`FILE` with the certificate shown to agents")
	fl.StringVar(&o.ClusterKey, "cluster-key", "", "`FILE` with the key of --cluster-cert")
	fl.StringVar(&o.ClusterCA, "cluster-ca-cert", "",
		"`FILE` with the CAs of agents' certificates; without it agents show none")
	fl.DurationVar(&o.Keepalive, "keepalive-time", time.Hour,
		"time between pings of silent agents; 30s unless it is given")
	o.keepaliveGiven = func() bool { return fl.Changed("keepalive-time") }
	fl.DurationVar(&o.FrontendKeepalive, "frontend-keepalive-time", time.Hour,
		"time between pings of silent frontends")
	fl.BoolVar(&o.Profiles.Enabled, "enable-profiling", false, "serve /debug/pprof on the admin port")
	fl.BoolVar(&o.Profiles.Contention, "enable-contention-profiling", false,
		"profile contention too; needs --enable-profiling")
	fl.StringVar(&o.ServerID, "server-id", dropin.ID(getenv("PROXY_SERVER_ID")),
		"`ID` of this server; the default is PROXY_SERVER_ID or a random one")
	fl.IntVar(&o.ServerCount, "server-count", 1, "servers that each agent shall connect to")
	fl.StringVar(&o.AgentNamespace, "agent-namespace", "",
		"namespace of the agents' service account; asks agents for a token")
	fl.StringVar(&o.AgentServiceAccount, "agent-service-account", "", "service account of agents")
	fl.StringVar(&o.Audience, "authentication-audience", "", "audience of agents' tokens")
	fl.StringVar(&o.Kubeconfig, "kubeconfig", "",
		"`FILE` for the API that reviews tokens and has leases; without it a pod's own account")
	fl.StringVar(&o.Strategies, "proxy-strategies", "default",
		"how agents are chosen, in this order: default, destHost, destCIDR, defaultRoute")
	fl.StringSliceVar(&o.CipherSuites, "cipher-suites", nil, "cipher suites of TLS 1.2")
	fl.StringVar(&o.MinTLS, "tls-min-version", "", "VersionTLS10 to VersionTLS13; the default is VersionTLS12")
	fl.BoolVar(&o.Leases, "enable-lease-controller", false,
		"publish a lease for this server, by which agents count servers")
	fl.StringVar(&o.LeaseNamespace, "lease-namespace", "kube-system", "namespace of leases")
	fl.StringVar(&o.LeaseLabel, "lease-label", "k8s-app=konnectivity-server", "labels of leases")
	fl.DurationVar(&o.Drain, "graceful-shutdown-timeout", 0,
		"how long connections may continue after the first SIGTERM; 0: not at all")
	fl.DurationVar(&o.DialTimeout, "backend-dial-timeout", 0, "bound of a dial; 0: 30s")
	fl.Int("xfr-channel-size", 10, dropin.Ignored)
	fl.String("kube-api-content-type", "application/vnd.kubernetes.protobuf", dropin.Ignored)
	fl.Float32("kubeconfig-qps", 0, dropin.Ignored)
	fl.Int("kubeconfig-burst", 0, dropin.Ignored)
	fl.Bool("warn-on-channel-limit", true, dropin.Ignored)
}

func (o *Options) listening(fl *pflag.FlagSet) {
	fl.StringVar(&o.Mode, "mode", ModeGRPC, "what kube-apiserver speaks: grpc or http-connect")
	fl.StringVar(&o.Socket, "uds-name", "", "unix socket `PATH` for kube-apiserver, in place of a port")
	fl.BoolVar(&o.ReplaceSocket, "delete-existing-uds-file", true, "replace a socket that is there")
	fl.IntVar(&o.ServerPort, "server-port", 8090, "port for kube-apiserver; 0 with --uds-name")
	fl.StringVar(&o.ServerAddress, "server-bind-address", "", "`ADDRESS` of the port for kube-apiserver; empty: all")
	fl.IntVar(&o.AgentPort, "agent-port", 8091, "port for agents")
	fl.BoolVar(&o.Native, "native", true,
		"take from agents of Tombolo a protocol with flow control for each connection; not of the reference")
	fl.StringVar(&o.AgentAddress, "agent-bind-address", "", "`ADDRESS` of the port for agents; empty: all")
	fl.IntVar(&o.AdminPort, "admin-port", 8095, "port for metrics and profiles")
	fl.StringVar(&o.AdminAddress, "admin-bind-address", "127.0.0.1", "`ADDRESS` of the admin port")
	fl.IntVar(&o.HealthPort, "health-port", 8092, "port for probes and metrics")
	fl.StringVar(&o.HealthAddress, "health-bind-address", "", "`ADDRESS` of the health port; empty: all")
}

// Meaningless are the flags that are taken and mean nothing.
func Meaningless() []string {
	return append(dropin.Meaningless(), "xfr-channel-size", "kube-api-content-type", "kubeconfig-qps", "kubeconfig-burst",
		"warn-on-channel-limit")
}

// checked are the options with what follows from them.
type checked struct {
	Options
	strategies []konnectivity.Strategy
	edit       func(*tls.Config)
	labels     map[string]string
}

// check refuses what the reference refuses, but for its ranges of ports.
func (o Options) check() (out checked, err error) {
	bad := func(what, hint string) error { return fault.New(fault.CodeUsage, what).Hint("%s", hint) }
	tokens := o.AgentNamespace != "" || o.AgentServiceAccount != "" || o.Audience != ""
	switch {
	case o.Mode != ModeGRPC && o.Mode != ModeConnect:
		return out, bad("--mode is neither grpc nor http-connect", "correct --mode")
	case (o.ServerCert == "") != (o.ServerKey == "") || (o.ClusterCert == "") != (o.ClusterKey == ""):
		return out, bad("a certificate comes without its key, or a key without its certificate",
			"give --server-cert with --server-key, and --cluster-cert with --cluster-key")
	case o.Socket != "" && o.ServerPort != 0:
		return out, bad("--uds-name and --server-port exclude each other", "give --server-port=0 with --uds-name")
	case o.Socket != "" && (o.ServerCert != "" || o.ServerCA != ""):
		return out, bad("a unix socket has no certificate", "leave --server-cert, --server-key and --server-ca-cert out")
	case o.Socket == "" && (o.ServerCA == "" || o.ServerCert == ""):
		return out, bad("the port for kube-apiserver has no certificates",
			"give --server-cert, --server-key and --server-ca-cert, or --uds-name with --server-port=0")
	case o.ClusterCert == "":
		return out, bad("the port for agents has no certificate", "give --cluster-cert and --cluster-key")
	case o.Profiles.Contention && !o.Profiles.Enabled:
		return out, bad("--enable-contention-profiling needs --enable-profiling", "give both, or none")
	case tokens && o.ClusterCA != "":
		return out, bad("agents show a token or a certificate, not both", "leave out --cluster-ca-cert, or --agent-namespace")
	case tokens && (o.AgentNamespace == "" || o.AgentServiceAccount == "" || o.Audience == ""):
		return out, bad("tokens of agents cannot be judged",
			"give all of --agent-namespace, --agent-service-account and --authentication-audience")
	case o.Drain < 0 || o.DialTimeout < 0:
		return out, bad("a timeout is below 0", "correct --graceful-shutdown-timeout or --backend-dial-timeout")
	}
	out = checked{Options: o}
	if out.strategies, err = konnectivity.ParseStrategies(o.Strategies); err != nil {
		return out, err
	}
	if out.labels, err = dropin.Labels(o.LeaseLabel); err != nil {
		return out, err
	}
	out.edit, err = o.policy()
	return out, err
}

// policy is that of TLS.
func (o Options) policy() (func(*tls.Config), error) {
	versions := map[string]uint16{"": tls.VersionTLS12, "VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
		"VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13}
	least, ok := versions[o.MinTLS]
	if !ok {
		return nil, fault.Newf(fault.CodeUsage, "there is no TLS version %q", o.MinTLS).
			Hint("--tls-min-version takes VersionTLS10, VersionTLS11, VersionTLS12 and VersionTLS13")
	}
	var suites []uint16
	for _, name := range o.CipherSuites {
		all := tls.CipherSuites()
		i := slices.IndexFunc(all, func(s *tls.CipherSuite) bool { return s.Name == name })
		if i < 0 {
			var names []string
			for _, s := range all {
				names = append(names, s.Name)
			}
			f := fault.Newf(fault.CodeUsage, "the cipher suite %q is unknown or insecure", name)
			if near := conf.Near(name, names...); near != "" {
				return nil, f.Hint("did you mean %s?", near)
			}
			return nil, f.Hint("--cipher-suites takes %s", strings.Join(names, ", "))
		}
		suites = append(suites, all[i].ID)
	}
	return func(c *tls.Config) { c.MinVersion, c.CipherSuites = least, suites }, nil
}
