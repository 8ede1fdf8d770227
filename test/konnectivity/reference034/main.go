// SPDX-License-Identifier: Apache-2.0

// Command reference034 is the server and the agent of kubernetes-sigs/apiserver-network-proxy v0.34.0, which older
// clusters run, as its own commands are. It does not know Tombolo.
//
//	reference034 server --uds-name=... --server-port=0 ...
//	reference034 agent --proxy-server-host=... ...
package main

import (
	"errors"
	"fmt"
	"os"

	agentapp "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app"
	agentoptions "sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"
	serverapp "sigs.k8s.io/apiserver-network-proxy/cmd/server/app"
	serveroptions "sigs.k8s.io/apiserver-network-proxy/cmd/server/app/options"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("server or agent is expected")
	}
	switch args[0] {
	case "server":
		o := serveroptions.NewProxyRunOptions()
		if err := o.Flags().Parse(args[1:]); err != nil {
			return err
		}
		return (&serverapp.Proxy{}).Run(o, serverapp.SetupSignalHandler())
	case "agent":
		o := agentoptions.NewGrpcProxyAgentOptions()
		if err := o.Flags().Parse(args[1:]); err != nil {
			return err
		}
		drain, stop := agentapp.SetupSignalHandler()
		return (&agentapp.Agent{}).Run(o, drain, stop)
	}
	return fmt.Errorf("there is no %q", args[0])
}
