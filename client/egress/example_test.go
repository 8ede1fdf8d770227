// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"

	"github.com/tombolo-io/tombolo/client"
	"github.com/tombolo-io/tombolo/client/egress"
)

// A program scrapes a pod by the file that kube-apiserver has.
func Example() {
	file, pod, stop := exampleHub()
	defer stop()

	selector, err := egress.Load(file) // on a kube-apiserver's machine: /etc/kubernetes/egress.yaml
	if err != nil {
		fmt.Println(err)
		return
	}
	dialer, err := selector.Dialer(egress.Cluster)
	if err != nil {
		fmt.Println(err)
		return
	}
	web := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
	defer web.CloseIdleConnections()
	res, err := web.Get("http://" + pod + "/metrics")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	fmt.Print(string(text), err)
	// Output:
	// http_requests_total 42
	// <nil>
}

// The transport of a program that has one already: all its connections go through the cluster's agents, and say whose
// request they are for.
func ExampleDialer_DialContext() {
	file, pod, stop := exampleHub()
	defer stop()

	selector, err := egress.Load(file)
	if err != nil {
		fmt.Println(err)
		return
	}
	selector.Metadata = map[string]string{"app": "reports"}
	dialer, err := selector.Dialer("cluster")
	if err != nil {
		fmt.Println(err)
		return
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil // of the environment: it is not in the cluster
	transport.DialContext = dialer.DialContext
	defer transport.CloseIdleConnections()

	ctx := client.WithHeader(context.Background(), "X-Remote-User", "jane")
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pod+"/metrics", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	res.Body.Close()
	fmt.Println(res.Status)
	// Output:
	// 200 OK
}

// exampleHub stands for a hub, which connects to targets itself, and a pod. It returns the file that 'tombolo
// egress-config c1 --mode connect-uds' writes.
func exampleHub() (file, pod string, stop func()) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "http_requests_total 42")
	}))
	dir, err := os.MkdirTemp("", "egress")
	if err != nil {
		panic(err)
	}
	socket := filepath.Join(dir, "connect.sock")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		panic(err)
	}
	hub := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, err := net.Dial("tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		from, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		io.WriteString(from, "HTTP/1.1 200 Connection Established\r\n\r\n")
		go func() { io.Copy(to, from); to.Close() }()
		go func() { io.Copy(from, to); from.Close() }()
	})}
	go hub.Serve(ln)
	file = filepath.Join(dir, "egress.yaml")
	text := `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: ` + socket + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		panic(err)
	}
	return file, target.Listener.Addr().String(), func() { hub.Close(); target.Close(); os.RemoveAll(dir) }
}
