// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"
	"strings"
	"testing"
)

// TestServicesCarrySTUN: nodes behind NAT learn where they are seen by UDP at the number of the
// main port, from the address that they really come from.
func TestServicesCarrySTUN(t *testing.T) {
	for _, tc := range []struct {
		name   string
		render func() ([]byte, error)
		policy any
		want   []string // name number nodePort protocol
	}{
		{"hub", func() ([]byte, error) { return Hub(hubOptions(nil)) }, "Local", []string{"hub 8443 <nil> TCP", "stun 8443 <nil> UDP"}},
		{"hub inside", func() ([]byte, error) {
			return Hub(hubOptions(func(o *HubOptions) { o.ServiceType = "ClusterIP" }))
		}, nil, []string{"hub 8443 <nil> TCP", "stun 8443 <nil> UDP"}},
		{"hub on a port of nodes", func() ([]byte, error) {
			return Hub(hubOptions(func(o *HubOptions) { o.ServiceType, o.NodePort = "NodePort", 30443 }))
		}, "Local", []string{"hub 8443 30443 TCP", "stun 8443 30443 UDP"}},
		{"discovery", func() ([]byte, error) { return Meet(meetOptions(nil)) }, "Local",
			[]string{"discovery 8446 <nil> TCP", "stun 8446 <nil> UDP", "stun-second 3478 <nil> UDP"}},
		{"discovery on a port of nodes", func() ([]byte, error) {
			return Meet(meetOptions(func(o *MeetOptions) { o.ServiceType, o.NodePort = "NodePort", 30446 }))
		}, "Local", []string{"discovery 8446 30446 TCP", "stun 8446 30446 UDP", "stun-second 3478 <nil> UDP"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := tc.render()
			if err != nil {
				t.Fatal(err)
			}
			docs := decode(t, data)
			spec := at(t, docs["Service"], "spec").(map[string]any)
			var got []string
			for _, p := range spec["ports"].([]any) {
				p := p.(map[string]any)
				if p["port"] != p["targetPort"] {
					t.Errorf("port %v leads to %v", p["port"], p["targetPort"])
				}
				got = append(got, fmt.Sprintln(p["name"], p["port"], p["nodePort"], p["protocol"]))
			}
			if want := strings.Join(tc.want, "\n") + "\n"; strings.Join(got, "") != want {
				t.Errorf("the Service has\n%swant\n%s", strings.Join(got, ""), want)
			}
			if spec["externalTrafficPolicy"] != tc.policy {
				t.Errorf("externalTrafficPolicy is %v, want %v", spec["externalTrafficPolicy"], tc.policy)
			}
			pod := fmt.Sprint(at(t, docs["StatefulSet"], "spec", "template", "spec", "containers", 0, "ports"))
			for _, want := range tc.want {
				f := strings.Fields(want)
				if says := fmt.Sprintf("containerPort:%s name:%s protocol:%s", f[1], f[0], f[3]); !strings.Contains(pod, says) {
					t.Errorf("the pod does not name %s: %s", says, pod)
				}
			}
		})
	}
}
