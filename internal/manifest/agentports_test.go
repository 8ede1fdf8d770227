// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"

	"github.com/tombolo-io/tombolo/api/v1alpha1"
	"github.com/tombolo-io/tombolo/internal/base/conf"
)

// TestThePortsOfAnAgent decodes the ConfigMap's file as the agent would.
func TestThePortsOfAnAgent(t *testing.T) {
	for from, listen := range map[string]string{"10.244.0.0/16": "0.0.0.0:6443", "fd00:1::/64": "[::]:6443"} {
		data, err := Agent(agentOptions(func(o *AgentOptions) {
			o.Allow, o.Ports, o.PortFrom = nil, []string{"kube-host=6443"}, []string{from}
		}))
		if err != nil {
			t.Fatal(err)
		}
		text := at(t, decode(t, data)["ConfigMap"], "data", agentFile).(string)
		var got v1alpha1.AgentConfig
		if err := conf.Decode(agentFile, []byte(text), &got).Err(); err != nil {
			t.Fatal(err)
		}
		if got.Kind != v1alpha1.KindAgentConfig || len(got.Ports) != 1 || got.Ports[0].Name != "kube-host" ||
			got.Ports[0].Listen != listen || strings.Join(got.Ports[0].From, " ") != "127.0.0.0/8 ::1 "+from {
			t.Errorf("the agent would read %+v", got)
		}
	}
}

func TestPortsThatAreRefused(t *testing.T) {
	someone := []string{"10.0.0.0/8"}
	for _, c := range []struct {
		ports, from []string
		want        string
	}{
		{[]string{"kube-host=443"}, someone, "from 1024 on"},
		{[]string{"1a=6443"}, someone, "NAME=NUMBER"},
		{[]string{"6443"}, someone, "NAME=NUMBER"},
		{[]string{"a=65536"}, someone, "NAME=NUMBER"},
		{[]string{"a=8445"}, someone, "not 8445"},
		{[]string{"a=6443", "b=6443"}, someone, "another one has"},
		{[]string{"a=6443", "a=6444"}, someone, "another one has"},
		{[]string{"a=6443"}, nil, "--port-from: is missing"},
		{nil, someone, "without --port"},
		{[]string{"a=6443"}, []string{"10.0.0.0/x"}, "neither a CIDR"},
	} {
		_, err := Agent(agentOptions(func(o *AgentOptions) { o.Ports, o.PortFrom = c.ports, c.from }))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q from %q: %v", c.ports, c.from, err)
		}
	}
}
