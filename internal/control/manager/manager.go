// SPDX-License-Identifier: Apache-2.0

// Package manager runs the features of the controller: one replica of several leads and writes, all of them answer the
// API server's webhooks, with certificates that they make themselves. It does not know what a feature does.
package manager

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	objects "github.com/tombolo-io/tombolo/api/objects/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/listener"
	"github.com/tombolo-io/tombolo/internal/base/telemetry"
	"github.com/tombolo-io/tombolo/internal/control/controlconf"
	"github.com/tombolo-io/tombolo/internal/control/webhookcert"
)

// Feature is something that the controller does.
type Feature struct {
	Name  string
	Types func(*runtime.Scheme) error // kinds that it reads and writes beside ours; nil: none
	Add   func(context.Context, Host) error
}

// Host is where a feature adds its controllers and webhooks. Controllers run on the replica that leads, webhooks on
// all.
type Host struct {
	ctrl.Manager
	Log       *slog.Logger
	Metrics   prometheus.Registerer
	Reviews   *prometheus.CounterVec        // kind, outcome
	Namespace string                        // of the controller itself
	Name      string                        // of the controller, and so of its Lease
	Version   string                        // of the program
	Unready   func(why func() *fault.Fault) // adds what may keep the API server from asking this replica
}

// Options are what a manager is made with.
type Options struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Features []Feature
	Kinds    []string // that webhooks review
}

// Manager runs features.
type Manager struct {
	cfg   controlconf.Config
	log   *slog.Logger
	reg   *prometheus.Registry
	m     ctrl.Manager
	certs *certificates
	leads atomic.Bool
	waits []func() *fault.Fault // of features: why this replica is not ready
}

// New connects to the API server, and adds the features.
func New(ctx context.Context, cfg controlconf.Config, o Options) (*Manager, error) {
	rc, err := access(&cfg)
	if err != nil {
		return nil, err
	}
	logger := logr.FromSlogHandler(telemetry.Texts(o.Log, "the libraries of Kubernetes"))
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	scheme := runtime.NewScheme()
	add := []func(*runtime.Scheme) error{objects.AddToScheme, corev1.AddToScheme, admissionv1.AddToScheme}
	for _, f := range o.Features {
		if f.Types != nil {
			add = append(add, f.Types)
		}
	}
	for _, fn := range add {
		if err := fn(scheme); err != nil {
			return nil, fault.New(fault.CodeInternal, "kinds of Kubernetes clash").Because(err)
		}
	}
	x := &Manager{cfg: cfg, log: o.Log, reg: o.Registry}
	server, err := x.webhooks(rc, scheme)
	if err != nil {
		return nil, err
	}
	renew, retry := cfg.LeaseDuration*2/3, cfg.LeaseDuration*2/15
	x.m, err = ctrl.NewManager(rc, ctrl.Options{
		Scheme: scheme, Logger: logger, WebhookServer: server, GracefulShutdownTimeout: &cfg.Drain,
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		LeaderElection: true, LeaderElectionID: cfg.Name, LeaderElectionNamespace: cfg.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &cfg.LeaseDuration, RenewDeadline: &renew, RetryPeriod: &retry,
	})
	if err != nil {
		return nil, fault.New(fault.CodeKubeAway, "the controller cannot begin").Because(err).
			Hint("check the kubeconfig, and that the API server answers")
	}
	told := telemetry.NewController(o.Registry, o.Kinds, telemetry.ControllerReadings{
		Leads: x.leads.Load, Expires: x.certs.expires,
	})
	x.certs.told = told.Renewals
	host := Host{x.m, o.Log, o.Registry, told.Reviews, cfg.Namespace, cfg.Name, cfg.Version,
		func(why func() *fault.Fault) { x.waits = append(x.waits, why) }}
	for _, f := range o.Features {
		if err := f.Add(ctx, host); err != nil {
			return nil, fault.Newf(fault.CodeInternal, "the feature %s cannot be added", f.Name).Because(err)
		}
		o.Log.Info("a feature is on", "feature", f.Name)
	}
	for _, r := range []runnable{{x.health, false}, {x.certs.run, false}, {x.lead, true}} {
		if err := x.m.Add(r); err != nil {
			return nil, fault.New(fault.CodeInternal, "the controller cannot begin").Because(err)
		}
	}
	return x, nil
}

// access is how the API server is reached. It completes the namespace.
func access(cfg *controlconf.Config) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: cfg.Kubeconfig}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	rc, err := loader.ClientConfig()
	if err != nil {
		return nil, fault.New(fault.CodeConfig, "it is not known how to reach the API server").Because(err).
			Hint("run in a pod with a service account, or set kubeconfig")
	}
	if cfg.Namespace == "" {
		if cfg.Namespace, _, err = loader.Namespace(); err != nil {
			return nil, fault.New(fault.CodeConfig, "the controller's namespace is not known").Because(err).
				Hint("set namespace")
		}
	}
	rc.UserAgent = "tombolo-controller/" + cfg.Version
	rc.QPS, rc.Burst = -1, -1 // the API server has priority and fairness
	return rc, nil
}

// webhooks makes the server, whose certificate may change at any time.
func (x *Manager) webhooks(rc *rest.Config, scheme *runtime.Scheme) (webhook.Server, error) {
	host, port, err := net.SplitHostPort(x.cfg.WebhookListen)
	if err != nil {
		return nil, fault.New(fault.CodeConfig, "webhooks.listen cannot be read").Because(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fault.New(fault.CodeConfig, "webhooks.listen cannot be read").Because(err)
	}
	c, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fault.New(fault.CodeKubeAway, "the controller cannot begin").Because(err).
			Hint("check the kubeconfig, and that the API server answers")
	}
	service := x.cfg.Name + "." + x.cfg.Namespace + ".svc"
	x.certs = &certificates{
		client: c, log: x.log, namespace: x.cfg.Namespace, name: x.cfg.Name, leads: x.leads.Load,
		plan:    webhookcert.Plan{Life: x.cfg.CertificateLife, Names: append([]string{service}, x.cfg.WebhookNames...)},
		mutates: x.cfg.Access != nil && len(x.cfg.Access.Gateways) > 0,
	}
	return webhook.NewServer(webhook.Options{Host: host, Port: number, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion = tls.VersionTLS13
		c.GetCertificate = x.certs.get
	}}}), nil
}

// Run runs until soft ends, and then until what has begun is done.
func (x *Manager) Run(soft context.Context) error {
	x.log.Info("the controller begins", "namespace", x.cfg.Namespace, "name", x.cfg.Name)
	if err := x.m.Start(soft); err != nil {
		return fault.New(fault.CodeKubeAway, "the controller ended").Because(err).
			Hint("it may have lost its Lease to another replica; it is started again")
	}
	return nil
}

// lead notes that this replica leads.
func (x *Manager) lead(ctx context.Context) error {
	x.leads.Store(true)
	defer x.leads.Store(false)
	x.log.Info("this replica leads")
	<-ctx.Done()
	return nil
}

// health serves probes and metrics.
func (x *Manager) health(ctx context.Context) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", x.cfg.HealthListen)
	if err != nil {
		return fault.New(fault.CodeAddressBusy, "the health port cannot be opened").Because(err).
			Hint("change healthListen")
	}
	h := listener.Health{
		Ready: x.ready, Metrics: prometheus.Gatherers{x.reg, metrics.Registry}, Log: x.log,
	}
	return h.Serve(ctx, ln)
}

// ready says why the API server should not ask this replica.
func (x *Manager) ready() *fault.Fault {
	if x.certs.expires() <= float64(time.Now().Unix()) {
		return fault.New(fault.CodeCertExpired, "there is no valid certificate of the webhooks yet")
	}
	if err := x.m.GetWebhookServer().StartedChecker()(nil); err != nil {
		return fault.New(fault.CodeKubeAway, "the webhooks do not answer yet").Because(err)
	}
	for _, why := range x.waits {
		if f := why(); f != nil {
			return f
		}
	}
	return nil
}

// runnable is a function that the manager runs, on the leader or on all.
type runnable struct {
	run    func(context.Context) error
	leader bool
}

// Start runs it.
func (r runnable) Start(ctx context.Context) error { return r.run(ctx) }

// NeedLeaderElection says where.
func (r runnable) NeedLeaderElection() bool { return r.leader }
