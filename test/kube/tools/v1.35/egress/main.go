// SPDX-License-Identifier: Apache-2.0

// Command egress reads files as kube-apiserver reads that of --egress-selector-config-file, and prints for each a line
// with what it takes of it: {"error": …} or {"selections": {NAME: [PROTOCOL, TRANSPORT, ADDRESS]}}.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/server/egressselector"
)

func main() {
	out := json.NewEncoder(os.Stdout)
	for _, file := range os.Args[1:] {
		if err := out.Encode(read(file)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func read(file string) map[string]any {
	c, err := egressselector.ReadEgressSelectorConfiguration(file)
	if err == nil {
		err = egressselector.ValidateEgressSelectorConfiguration(c).ToAggregate()
	}
	if err == nil {
		_, err = egressselector.NewEgressSelector(c)
	}
	if err != nil {
		return map[string]any{"error": err.Error()}
	}
	all := map[string][3]string{}
	for _, s := range c.EgressSelections {
		one := [3]string{string(s.Connection.ProxyProtocol)}
		switch t := s.Connection.Transport; {
		case s.Connection.ProxyProtocol == apiserver.ProtocolDirect:
		case t.UDS != nil:
			one[1], one[2] = "uds", t.UDS.UDSName
		default:
			one[1], one[2] = "tcp", t.TCP.URL
		}
		all[strings.ToLower(s.Name)] = one
	}
	return map[string]any{"selections": all}
}
