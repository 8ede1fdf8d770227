// SPDX-License-Identifier: Apache-2.0

package discoveryclient

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// Why a service is not reached is said once, in our words: no code within, nothing of gRPC's.
func TestWhyAServiceIsNotReached(t *testing.T) {
	srv := httptest.NewUnstartedServer(nil)
	srv.EnableHTTP2, srv.Config.ErrorLog = true, slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	srv.StartTLS()
	defer srv.Close()
	plain := httptest.NewServer(nil)
	defer plain.Close()
	var d net.Dialer
	nobody := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody is there") }
	for name, tc := range map[string]struct {
		url  string
		dial dialer
		want string
	}{
		"a CA of its own": {srv.URL, d.DialContext, "no CA of the system has signed the service's certificate: the pin of its own CA is missing"},
		"no TLS":          {"https://" + plain.Listener.Addr().String(), d.DialContext, "tls: first record does not look like a TLS handshake"},
		"nobody":          {"https://192.0.2.1", nobody, "nobody is there"},
	} {
		t.Run(name, func(t *testing.T) {
			to, err := parsePlace(tc.url)
			if err != nil {
				t.Fatal(err)
			}
			c := &subscription{service: Service{Name: "s"}, subscriptionParts: subscriptionParts{dial: tc.dial}}
			conn, err := c.connect(to, ProtocolNative)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			err = c.explain(conn.Invoke(t.Context(), "/some/Call", &emptypb.Empty{}, &emptypb.Empty{}))
			if f := fault.From(err); f.Code != fault.CodeServiceAway || !strings.HasPrefix(f.Why, tc.want) {
				t.Errorf("%v", err)
			}
		})
	}
}
