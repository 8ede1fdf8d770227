// SPDX-License-Identifier: Apache-2.0

package enrol

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/admin"
	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/id"
	"github.com/tombolo-io/tombolo/internal/base/limit"
)

// Client asks hubs for certificates.
type Client struct {
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Now  func() time.Time
	Log  *slog.Logger
	// Role is node for a node of the mesh, empty for an agent; Node is the name that a
	// node asks for, empty if its token names it.
	Role, Node string
}

func (c Client) role() id.Role {
	if c.Role == "" {
		return id.RoleAgent
	}
	return id.Role(c.Role)
}

// Join trades a token for a certificate at the first hub address that answers.
// The token is sent only to a hub whose CA matches the pin of the line.
func (c Client) Join(ctx context.Context, j trust.Join, key crypto.Signer) (*Identity, error) {
	csr, err := trust.NewCSR(key)
	if err != nil {
		return nil, err
	}
	body := admin.JoinRequest{TokenID: j.TokenID, Secret: j.Secret, Cluster: j.Cluster.String(), CSR: string(csr),
		Role: c.Role, Node: c.Node}
	answer, err := c.ask(ctx, j.Hubs, "/v1/join", body, func() *tls.Config { return trust.PinnedConfig(j.Pin, c.Now) })
	if err != nil {
		return nil, err
	}
	out := &Identity{Key: key, Hubs: j.Hubs, Token: j.TokenID}
	if err := out.SetCertificates(answer.Certificate, answer.CA); err != nil {
		return nil, err
	}
	if trust.Pin(out.CA) != j.Pin || out.Who.Cluster != j.Cluster || out.Who.Role != c.role() ||
		c.Node != "" && out.Who.Name != c.Node {
		return nil, fault.New(fault.CodeCertInvalid, "the hub issued a certificate that does not fit the join line")
	}
	return out, nil
}

// Renew gets a new certificate with a new key, authenticated by the old certificate,
// which may have expired within the hub's grace period.
func (c Client) Renew(ctx context.Context, old *Identity, hubs []string) (*Identity, error) {
	key, err := trust.NewKey()
	if err != nil {
		return nil, err
	}
	csr, err := trust.NewCSR(key)
	if err != nil {
		return nil, err
	}
	answer, err := c.ask(ctx, hubs, "/v1/renew", admin.RenewRequest{CSR: string(csr)}, func() *tls.Config {
		return trust.HubClientConfig(old.Check(c.Now), old.TLS(), trust.ALPNJoin)
	})
	if err != nil {
		return nil, err
	}
	out := &Identity{Key: key, Hubs: old.Hubs, Token: old.Token}
	if err := out.SetCertificates(answer.Certificate, answer.CA); err != nil {
		return nil, err
	}
	if out.Who != old.Who {
		return nil, fault.New(fault.CodeCertInvalid, "the hub renewed to another identity").
			Whyf("%s instead of %s", out.Who, old.Who)
	}
	return out, nil
}

// Check returns what the certificate of the identity's hub must satisfy.
func (i *Identity) Check(now func() time.Time) func() trust.Check {
	return func() trust.Check {
		return trust.Check{Roots: trust.RootsOf(i.CA), TrustDomain: i.Who.TrustDomain, Now: now()}
	}
}

// ask posts to each hub address in turn until one answers.
func (c Client) ask(ctx context.Context, hubs []string, path string, body any,
	tlsConfig func() *tls.Config) (admin.JoinAnswer, error) {
	var last error
	for _, hub := range hubs {
		answer, err := c.askOne(ctx, hub, path, body, tlsConfig())
		if err == nil {
			if skew := time.UnixMilli(answer.UnixMillis).Sub(c.Now()); skew.Abs() > limit.ClockTolerance {
				c.Log.Warn("this machine's clock differs from the hub's", "by", skew.Round(time.Second))
			}
			return answer, nil
		}
		last = err
		if !fault.Has(err, fault.CodeHubAway) {
			return answer, err // a refusal is final: another hub would refuse too
		}
	}
	return admin.JoinAnswer{}, last
}

func (c Client) askOne(ctx context.Context, hub, path string, body any,
	cfg *tls.Config) (answer admin.JoinAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Dial)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return answer, err
	}
	client := &http.Client{
		Transport: &http.Transport{
			DialContext: c.Dial, TLSClientConfig: cfg, DisableKeepAlives: true,
			TLSHandshakeTimeout: limit.Handshake, MaxResponseHeaderBytes: limit.RequestHeader,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+hub+path, bytes.NewReader(data))
	if err != nil {
		return answer, fault.New(fault.CodeJoinLine, "the hub's address cannot be used").Because(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return answer, HubFault(hub, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, limit.AdminBody))
	if err != nil {
		return answer, HubFault(hub, err)
	}
	if res.StatusCode != http.StatusOK {
		var f admin.FaultBody
		if json.Unmarshal(text, &f) == nil && f.Code != "" {
			return answer, f.Fault().After(retryAfter(res.Header))
		}
		return answer, fault.Newf(fault.CodeHubAway, "%s answered %s", hub, res.Status).Whyf("it does not seem to be a hub")
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, fault.Newf(fault.CodeHubAway, "the answer of %s cannot be read", hub).Because(err)
	}
	return answer, nil
}

// retryAfter is the Retry-After of a refusal; 0 if the hub does not say.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 16)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, limit.AttachRefused)
}

// HubFault makes a fault of a failure to reach a hub; the faults of certificate
// verification pass unchanged.
func HubFault(hub string, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	return fault.Newf(fault.CodeHubAway, "the hub %s cannot be reached", hub).Because(err).
		Hint("check the address, the firewalls (TCP), and that the hub runs")
}
