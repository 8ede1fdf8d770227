// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/tombolo-io/tombolo/client"
)

// An HTTP client whose requests leave through an agent of the cluster.
func ExampleDialer() {
	d := &client.Dialer{
		Hub: "hub.example:8443", Certificate: "client.crt", Key: "client.key", CA: "ca.crt",
		Metadata: map[string]string{"purpose": "nightly-report"},
	}
	web := &http.Client{Transport: &http.Transport{DialContext: d.DialContext}}
	res, err := web.Get("http://grafana.monitoring.svc/api/health")
	var refused *client.Error
	switch {
	case errors.As(err, &refused) && refused.Code == "policy_denied":
		fmt.Println("not allowed:", refused.Reason)
	case err != nil:
		fmt.Println(err)
	default:
		res.Body.Close()
	}
}

// A dial that is a part of a trace, with its ticket in the audit records.
func ExampleWithTrace() {
	d := &client.Dialer{Socket: "/run/tombolo/clusters/c1/connect.sock"}
	ctx := client.WithTrace(context.Background(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
	ctx = client.WithMetadata(ctx, map[string]string{"ticket": "OPS-1234"})
	conn, err := d.DialContext(ctx, "tcp", "10.96.0.10:5432")
	if err != nil {
		return
	}
	defer conn.Close()
	conn.(*client.Conn).CloseWrite()
}
