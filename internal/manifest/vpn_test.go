// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/vpn"
)

const (
	testBundle    = "-----BEGIN PRIVATE KEY-----\nb\n-----END PRIVATE KEY-----\n"
	testStaticKey = "-----BEGIN OpenVPN Static key V1-----\nk\n-----END OpenVPN Static key V1-----\n"
)

func vpnServerOptions(change func(*VPNServerOptions)) VPNServerOptions {
	o := VPNServerDefaults()
	o.Image, o.Namespace, o.Cluster = "tombolo.local/tombolo-vpn:dev", "shoot--p--c1", "c1"
	o.Bundles, o.StaticKey, o.Ranges = []string{testBundle}, testStaticKey, []string{"10.244.0.0/16"}
	o.Check = func(file string, config []byte) error {
		_, err := vpn.ParseServerConfig(file, config)
		return err
	}
	if change != nil {
		change(&o)
	}
	return o
}

func vpnClientOptions(change func(*VPNClientOptions)) VPNClientOptions {
	o := VPNClientDefaults()
	o.Image, o.Cluster, o.Servers = "tombolo.local/tombolo-vpn:dev", "c1", []string{"vpn.example.com:1194"}
	o.Bundles, o.StaticKey, o.Ranges = []string{testBundle}, testStaticKey, []string{"10.244.0.0/16"}
	o.Check = func(file string, config []byte) error {
		_, err := vpn.ParseClientConfig(file, config)
		return err
	}
	if change != nil {
		change(&o)
	}
	return o
}

func asForeign(o *VPNServerOptions) {
	o.Name, o.Secret, o.Bundles, o.StaticKey = "vpn-seed-server-4", "vpn", nil, ""
	o.ForeignCA, o.Clients, o.NoNamespace = true, []string{"vpn-shoot-client"}, true
}

// vpnObjects are the objects of a kind in each golden file of a VPN.
func vpnObjects(t *testing.T, kinds ...string) map[string][]map[string]any {
	t.Helper()
	out := map[string][]map[string]any{}
	for name, make := range cases() {
		if !strings.HasPrefix(name, "vpn-") {
			continue
		}
		data, err := make()
		if err != nil {
			t.Fatal(name, err)
		}
		for dec := yaml.NewDecoder(bytes.NewReader(data)); ; {
			var doc map[string]any
			if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(name, err)
			}
			if slices.Contains(kinds, doc["kind"].(string)) {
				out[name] = append(out[name], doc)
			}
		}
	}
	return out
}

// TestVPNPodsAskForTheirCapabilities: OpenVPN starts as root and becomes nobody, and only what forwards packets, before
// it, is privileged.
func TestVPNPodsAskForTheirCapabilities(t *testing.T) {
	for name, works := range vpnObjects(t, "Deployment", "StatefulSet") {
		add, server := []any{"NET_ADMIN", "SETUID", "SETGID", "KILL"}, strings.HasPrefix(name, "vpn-server")
		if server {
			add = slices.Insert(add, 1, any("NET_RAW"))
		}
		if len(works) != 1 {
			t.Fatalf("%s: %d workloads", name, len(works))
		}
		pod := at(t, works[0], "spec", "template", "spec")
		for _, want := range []struct {
			path  []any
			value any
		}{
			{[]any{"automountServiceAccountToken"}, false},
			{[]any{"securityContext", "seccompProfile", "type"}, "RuntimeDefault"},
			{[]any{"containers", 0, "securityContext", "runAsUser"}, 0},
			{[]any{"containers", 0, "securityContext", "allowPrivilegeEscalation"}, false},
			{[]any{"containers", 0, "securityContext", "readOnlyRootFilesystem"}, true},
			{[]any{"containers", 0, "securityContext", "capabilities", "add"}, add},
			{[]any{"containers", 0, "securityContext", "capabilities", "drop"}, []any{"ALL"}},
			{[]any{"containers", 0, "livenessProbe", "httpGet", "path"}, "/livez"},
			{[]any{"containers", 0, "readinessProbe", "httpGet", "path"}, "/readyz"},
			{[]any{"volumes", 4, "hostPath", "type"}, "CharDevice"},
		} {
			if got := at(t, pod, want.path...); !reflect.DeepEqual(got, want.value) {
				t.Errorf("%s: %v is %v, want %v", name, want.path, got, want.value)
			}
		}
		box, whole := at(t, pod, "containers", 0).(map[string]any), pod.(map[string]any)
		if limits := box["resources"].(map[string]any)["limits"]; (limits != nil) != (name == "vpn-server-udp") {
			t.Errorf("%s: limits are %v", name, limits)
		}
		if server == (whole["initContainers"] != nil) {
			t.Errorf("%s: init containers are %v", name, whole["initContainers"])
		}
		if server {
			continue
		}
		if at(t, pod, "dnsPolicy") != "Default" || at(t, pod, "priorityClassName") != "system-cluster-critical" ||
			at(t, pod, "initContainers", 0, "securityContext", "privileged") != true {
			t.Errorf("%s: %v", name, pod)
		}
		script := at(t, pod, "initContainers", 0, "command", 2).(string)
		if !strings.Contains(script, "ipv4/ip_forward") || strings.Contains(script, "ipv6") != (name == "vpn-client-two") {
			t.Errorf("%s: the script is %q", name, script)
		}
	}
}

// TestVPNPodsHaveNamesOfTheirOwn: OpenVPN lets in one client of a name, so that a pod never runs beside the next one of
// its name.
func TestVPNPodsHaveNamesOfTheirOwn(t *testing.T) {
	for name, works := range vpnObjects(t, "Deployment", "StatefulSet") {
		kind, two := works[0]["kind"], strings.HasSuffix(name, "-two")
		if two != (kind == "StatefulSet") {
			t.Errorf("%s: %v", name, kind)
		}
		if !two && !reflect.DeepEqual(at(t, works[0], "spec", "strategy"), map[string]any{"type": "Recreate"}) {
			t.Errorf("%s: %v", name, at(t, works[0], "spec", "strategy"))
		}
	}
	data := map[string]map[string]any{}
	for name, docs := range vpnObjects(t, "ConfigMap") {
		data[name] = at(t, docs[0], "data").(map[string]any)
	}
	for _, name := range []string{"vpn-client-0", "vpn-client-1"} {
		if text, _ := data["vpn-client-two"][name+".yaml"].(string); !strings.Contains(text, "/identity"+name[10:]+".pem") {
			t.Errorf("%s has not its own identity:\n%s", name, text)
		}
	}
}

// TestVPNServices: clients get in before packets pass, and kube-apiserver when they do.
func TestVPNServices(t *testing.T) {
	for name, services := range vpnObjects(t, "Service") {
		got := map[string]bool{}
		for _, s := range services {
			early, _ := s["spec"].(map[string]any)["publishNotReadyAddresses"].(bool)
			got[at(t, s, "metadata", "name").(string)] = early
			if port := at(t, s, "spec", "ports", 0, "port"); early != (port == vpnPort) {
				t.Errorf("%s: port %v before it is ready: %v", name, port, early)
			}
		}
		want := map[string]map[string]bool{
			"vpn-server-plain":   {"vpn-server": true, "vpn-server-connect": false},
			"vpn-server-two":     {"vpn-server-0": true, "vpn-server-1": true, "vpn-server-connect": false},
			"vpn-server-foreign": {"vpn-seed-server-4": true, "vpn-seed-server-4-connect": false},
			"vpn-server-udp":     {"vpn-server": true},
		}[name]
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// TestVPNConfigsAgree gives each configuration to the program's own parser: both ends have the same defaults, each server
// has networks of its own, and every file is one that a container mounts.
func TestVPNConfigsAgree(t *testing.T) {
	server := func(o VPNServerOptions) (out []vpn.ServerConfig) {
		for i := range o.Pods {
			text, err := asText(vpnServerConfigOf(o, families{true, true}, i))
			if err != nil {
				t.Fatal(err)
			}
			c, err := vpn.ParseServerConfig("vpn.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, c)
		}
		return out
	}
	two := server(vpnServerOptions(func(o *VPNServerOptions) { o.Pods = 2 }))
	o := vpnClientOptions(func(o *VPNClientOptions) { o.Servers = []string{"a:1194", "b:1194"} })
	text, err := asText(vpnClientConfigOf(o, families{true, true}, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vpn.ParseClientConfig("vpn.yaml", []byte(text)); err != nil {
		t.Fatal(err)
	}
	for i, c := range two {
		if c.HealthListen != ":8449" || c.RunDir != RunDir || c.Listen.Port() != vpnPort || c.Connect == nil ||
			c.Identity.Bundle != "/etc/tombolo/identity/identity.pem" || c.OpenVPN.TLSAuth != "/etc/tombolo/identity/static.key" {
			t.Errorf("a server would read %+v", c)
		}
		for _, p := range []netip.Prefix{c.Transfer.V4, c.Transfer.V6} {
			if !strings.Contains(text, p.String()) || i == 1 && (p == two[0].Transfer.V4 || p == two[0].Transfer.V6) {
				t.Errorf("the transfer network %s of server %d, and a client:\n%s", p, i, text)
			}
		}
	}
	whole, err := vpn.ParseServerConfig("default.yaml", []byte(`apiVersion: tombolo.dev/v1alpha1
kind: VPNServerConfig
cluster: c1
identity: {bundle: /b.pem}
ranges: [{range: 10.244.0.0/16}]
`))
	if err != nil || whole.Transfer != two[0].Transfer {
		t.Errorf("%v: %v is not the program's own, %v", err, two[0].Transfer, whole.Transfer)
	}
}

// TestVPNConfigsAreMounted: the files that containers name are there.
func TestVPNConfigsAreMounted(t *testing.T) {
	work := vpnObjects(t, "Deployment", "StatefulSet")
	for name, docs := range vpnObjects(t, "ConfigMap") {
		box := at(t, work[name][0], "spec", "template", "spec", "containers", 0)
		file := strings.TrimPrefix(at(t, box, "args", 3).(string), configDir+"/")
		files := at(t, docs[0], "data").(map[string]any)
		if !strings.HasSuffix(name, "-two") {
			if len(files) != 1 || files[file] == nil {
				t.Errorf("%s: %s is not among %v", name, file, files)
			}
			continue
		}
		for _, pod := range []string{"-0", "-1"} {
			own := strings.Replace(file, "$(POD_NAME)", at(t, work[name][0], "metadata", "name").(string)+pod, 1)
			if len(files) != 2 || files[own] == nil {
				t.Errorf("%s: %s is not among %v", name, own, files)
			}
		}
	}
}

func TestVPNProblems(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*VPNServerOptions)
		want   string
	}{
		"no image":             {func(o *VPNServerOptions) { o.Image = "" }, "--image: is missing"},
		"no namespace":         {func(o *VPNServerOptions) { o.Namespace = "" }, "--namespace: is missing"},
		"no cluster":           {func(o *VPNServerOptions) { o.Cluster = "" }, "--cluster: is missing"},
		"three servers":        {func(o *VPNServerOptions) { o.Pods = 3 }, "--servers: 3 is neither 1 nor 2"},
		"host network":         {func(o *VPNServerOptions) { o.HostNetwork = true }, "--host-network: would route for the whole node"},
		"storage class":        {func(o *VPNServerOptions) { o.StorageClass = "x" }, "--storage-class:"},
		"protocol":             {func(o *VPNServerOptions) { o.Protocol = "sctp" }, "--protocol: \"sctp\""},
		"handshake":            {func(o *VPNServerOptions) { o.Handshake = "v2" }, "--handshake: \"v2\""},
		"no identity":          {func(o *VPNServerOptions) { o.Bundles = nil }, "--identity: is missing"},
		"identity twice":       {func(o *VPNServerOptions) { o.Secret = "x" }, "--identity: means nothing with --secret"},
		"no key":               {func(o *VPNServerOptions) { o.StaticKey = "" }, "--static-key: is missing"},
		"key for nothing":      {func(o *VPNServerOptions) { o.Handshake = HandshakeNone }, "--static-key: means nothing"},
		"odd secret":           {func(o *VPNServerOptions) { o.Secret = "A" }, "--secret:"},
		"foreign files":        {func(o *VPNServerOptions) { o.ForeignCA = true }, "--foreign-ca: needs --secret"},
		"foreign for nobody":   {func(o *VPNServerOptions) { asForeign(o); o.Clients = nil }, "--client: is missing"},
		"no range":             {func(o *VPNServerOptions) { o.Ranges = nil }, "--range: is missing, and so is --map"},
		"odd map":              {func(o *VPNServerOptions) { o.Maps = []string{"10.0.0.0/8"} }, "--map:"},
		"transfers":            {func(o *VPNServerOptions) { o.Pods, o.Transfer = 2, []string{"10.1.0.0/24"} }, "--transfer: stands 1 times"},
		"the same transfer":    {func(o *VPNServerOptions) { o.Pods, o.Transfer = 2, []string{"10.1.0.0/24", "10.1.0.0/24"} }, "--transfer: 10.1.0.0/24 stands twice"},
		"odd transfer":         {func(o *VPNServerOptions) { o.Transfer = []string{"x"} }, "--transfer: \"x\" is no CIDR"},
		"one port for two":     {func(o *VPNServerOptions) { o.Pods, o.ServiceType, o.NodePort = 2, "NodePort", 31194 }, "--node-port: is one"},
		"covers the transfer":  {func(o *VPNServerOptions) { o.Ranges = []string{"192.168.0.0/16"} }, "192.168.123.0/24, the transfer network, overlap"},
		"covers a local range": {func(o *VPNServerOptions) { o.Locals = []string{"10.244.3.0/24"} }, "a range of this side"},
		"reserved":             {func(o *VPNServerOptions) { o.Ranges = []string{"240.1.0.0/16"} }, "240.1.0.0/16"},
		"odd local range":      {func(o *VPNServerOptions) { o.Locals = []string{"x"} }, "localRanges[0]"},
		"small packets":        {func(o *VPNServerOptions) { o.MTU = 576 }, "mtu"},
		"large transfer":       {func(o *VPNServerOptions) { o.Transfer = []string{"10.0.0.0/8"} }, "is not between /16 and /28"},
	} {
		t.Run("server, "+name, func(t *testing.T) {
			out, err := VPNServer(vpnServerOptions(tc.change))
			checkVPNProblem(t, out, err, tc.want)
		})
	}
	proxied := func(change func(*VPNClientOptions)) func(*VPNClientOptions) {
		return func(o *VPNClientOptions) { o.Proxy = "edge.example.com:8132"; change(o) }
	}
	for name, tc := range map[string]struct {
		change func(*VPNClientOptions)
		want   string
	}{
		"no server":            {func(o *VPNClientOptions) { o.Servers = nil }, "--server: there are 0"},
		"three servers":        {func(o *VPNClientOptions) { o.Servers = []string{"a:1", "b:1", "c:1"} }, "--server: there are 3"},
		"server without port":  {func(o *VPNClientOptions) { o.Servers = []string{"a"} }, "--server:"},
		"no client":            {func(o *VPNClientOptions) { o.Pods = 0 }, "--clients: 0 is neither"},
		"one identity for two": {func(o *VPNClientOptions) { o.Pods = 2 }, "--identity: stands 1 times, 2 are needed"},
		"no range":             {func(o *VPNClientOptions) { o.Ranges = nil }, "--range: is missing"},
		"destination alone":    {func(o *VPNClientOptions) { o.Destinations = []string{"x"} }, "--destination: means nothing without --proxy"},
		"header alone":         {func(o *VPNClientOptions) { o.Header = "x" }, "--header: means nothing without --proxy"},
		"header for nothing":   {proxied(func(o *VPNClientOptions) { o.Header = "x" }), "--header: means nothing without --destination"},
		"proxy without port":   {func(o *VPNClientOptions) { o.Proxy = "edge" }, "--proxy:"},
		"udp by a proxy":       {proxied(func(o *VPNClientOptions) { o.Protocol = "udp" }), "--proxy: carries no udp"},
		"destinations":         {proxied(func(o *VPNClientOptions) { o.Destinations = []string{"a", "b"} }), "--destination: stands 2 times, and --server 1 times"},
		"odd destination":      {proxied(func(o *VPNClientOptions) { o.Destinations = []string{"a\nb"} }), "--destination: is empty, or"},
		"covers the transfer":  {func(o *VPNClientOptions) { o.Ranges = []string{"192.168.0.0/16"} }, "192.168.0.0/16, ranges[0], and 192.168.123.0/24"},
		"both transfers overlap": {func(o *VPNClientOptions) {
			o.Servers, o.Transfer = []string{"a:1", "b:1"}, []string{"10.1.0.0/16", "10.1.1.0/24"}
		}, "overlap"},
		"maps overlap": {func(o *VPNClientOptions) { o.Maps = []string{"10.0.0.0/16=10.244.0.0/16"} }, "--map:"},
	} {
		t.Run("client, "+name, func(t *testing.T) {
			out, err := VPNClient(vpnClientOptions(tc.change))
			checkVPNProblem(t, out, err, tc.want)
		})
	}
	_, err := VPNClient(VPNClientOptions{})
	for _, option := range []string{"image", "cluster", "clients", "server", "protocol", "handshake", "identity", "range"} {
		if err == nil || !strings.Contains(err.Error(), "--"+option+": ") {
			t.Errorf("not all at once: no --%s in %v", option, err)
		}
	}
}

func checkVPNProblem(t *testing.T, out []byte, err error, want string) {
	t.Helper()
	if len(out) > 0 || !fault.Has(err, fault.CodeUsage) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if err != nil && (strings.Contains(err.Error(), testBundle) || strings.Contains(err.Error(), testStaticKey)) {
		t.Error("a key is shown")
	}
}
