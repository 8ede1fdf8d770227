// SPDX-License-Identifier: Apache-2.0

// Command reference is the server and the agent of kubernetes-sigs/apiserver-network-proxy, as its own commands are,
// and prints what they have: their flags and their metrics. It does not know Tombolo.
//
//	reference server --uds-name=... --server-port=0 ...
//	reference agent --proxy-server-host=... ...
//	reference flags server|agent      JSON
//	reference metrics server|agent    the text format, each family with a series
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	agentapp "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app"
	agentoptions "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	serverapp "sigs.k8s.io/apiserver-network-proxy/cmd/server/app"
	serveroptions "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/common/metrics"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	agentmetrics "sigs.k8s.io/apiserver-network-proxy/pkg/agent/metrics"
	servermetrics "sigs.k8s.io/apiserver-network-proxy/pkg/server/metrics"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/proxystrategies"
	"sigs.k8s.io/apiserver-network-proxy/pkg/util"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("server, agent, flags or metrics is expected")
	}
	what := args[0]
	if what == "flags" || what == "metrics" {
		if len(args) != 2 {
			return errors.New("server or agent is expected")
		}
		args = args[1:]
	}
	so, ao := serveroptions.NewProxyRunOptions(), agentoptions.NewGrpcProxyAgentOptions()
	flags := so.Flags()
	if args[0] == "agent" {
		flags = ao.Flags()
	}
	if err := addLogFlags(flags); err != nil {
		return err
	}
	switch what {
	case "flags":
		return printFlags(flags)
	case "metrics":
		return printMetrics(args[0])
	case "server":
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return (&serverapp.Proxy{}).Run(so, serverapp.SetupSignalHandler())
	case "agent":
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		drain, stop := agentapp.SetupSignalHandler()
		return (&agentapp.Agent{}).Run(ao, drain, stop)
	}
	return fmt.Errorf("there is no %q", what)
}

// addLogFlags adds those of klog, as the reference's commands do.
func addLogFlags(flags *pflag.FlagSet) error {
	local := flag.NewFlagSet("reference", flag.ContinueOnError)
	klog.InitFlags(local)
	if err := local.Set("v", "4"); err != nil {
		return err
	}
	local.VisitAll(func(f *flag.Flag) {
		f.Name = util.Normalize(f.Name)
		flags.AddGoFlag(f)
	})
	return nil
}

func printFlags(flags *pflag.FlagSet) error {
	type row struct{ Name, Shorthand, Type, Default, NoOptDefault, Deprecated string }
	var rows []row
	flags.VisitAll(func(f *pflag.Flag) {
		rows = append(rows, row{f.Name, f.Shorthand, f.Value.Type(), f.DefValue, f.NoOptDefVal, f.Deprecated})
	})
	return json.NewEncoder(os.Stdout).Encode(rows)
}

// printMetrics gives each family a series, so that it is printed.
func printMetrics(of string) error {
	const data, failed = client.PacketType_DATA, "a stream failed"
	if of == "server" {
		m := servermetrics.Metrics
		m.ObserveDialLatency(time.Second)
		m.ObserveFrontendWriteLatency(time.Second)
		m.ConnectionInc(servermetrics.Proxy)
		m.HTTPConnectionInc()
		m.SetBackendCountDeprecated(1)
		m.SetTotalBackendCount(proxystrategies.ProxyStrategyDefault, 1)
		m.SetPendingDialCount(1)
		m.SetEstablishedConnCount(1)
		m.FullRecvChannel(servermetrics.Connect).Inc()
		m.ObserveDialFailure(servermetrics.DialFailureNoAgent)
		m.ObservePacket(metrics.SegmentFromAgent, data)
		m.ObserveStreamError(metrics.SegmentFromAgent, errors.New(failed), data)
		m.CulledLeasesInc()
		m.ObserveLeaseDelete(200, "")
		m.ObserveLeaseDeleteLatency(200, time.Second)
		m.ObserveLeaseList(200, "")
		m.ObserveLeaseListLatency(200, time.Second)
	} else {
		m := agentmetrics.Metrics
		m.ObserveDialLatency(time.Second)
		m.ObserveServerFailureDeprecated(agentmetrics.DirectionToServer)
		m.ObserveDialFailure(agentmetrics.DialFailureTimeout)
		m.SetServerConnectionsCount(1)
		m.SetServerCount(1)
		m.EndpointConnectionInc()
		m.ObservePacket(metrics.SegmentFromAgent, data)
		m.ObserveStreamError(metrics.SegmentFromAgent, errors.New(failed), data)
		m.ObserveLeaseList(200, "")
		m.ObserveLeaseWatch(200, "")
		m.ObserveLeaseListLatency(time.Second, 200)
	}
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(io.Writer(os.Stdout), f); err != nil {
			return err
		}
	}
	return nil
}
