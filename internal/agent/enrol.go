// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tombolo-io/tombolo/internal/admin"
	"github.com/tombolo-io/tombolo/internal/carrier"
	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
	"github.com/tombolo-io/tombolo/internal/trust"
)

// enrol trades a token for a certificate at the first hub address that answers.
// Only the hub whose CA has the pin of the line is shown the token.
func (a *Agent) enrol(ctx context.Context, j trust.Join, key crypto.Signer) (*identity, error) {
	csr, err := trust.NewCSR(key)
	if err != nil {
		return nil, err
	}
	body := admin.JoinRequest{TokenID: j.TokenID, Secret: j.Secret, Cluster: j.Cluster.String(), CSR: string(csr)}
	answer, err := a.ask(ctx, j.Hubs, "/v1/join", body, func() *tls.Config { return trust.PinnedConfig(j.Pin, a.now) })
	if err != nil {
		return nil, err
	}
	out := &identity{key: key, hubs: j.Hubs}
	if err := out.setCertificates(answer.Certificate, answer.CA); err != nil {
		return nil, err
	}
	if trust.Pin(out.ca) != j.Pin || out.who.Cluster != j.Cluster {
		return nil, fault.New(fault.CodeCertInvalid, "the hub issued a certificate that does not fit the join line")
	}
	return out, nil
}

// renew gets a new certificate with a new key by proving the old one, which may
// have run out not too long ago.
func (a *Agent) renew(ctx context.Context, old *identity) (*identity, error) {
	key, err := trust.NewKey()
	if err != nil {
		return nil, err
	}
	csr, err := trust.NewCSR(key)
	if err != nil {
		return nil, err
	}
	answer, err := a.ask(ctx, a.hubAddresses(old), "/v1/renew", admin.RenewRequest{CSR: string(csr)}, func() *tls.Config {
		return trust.HubClientConfig(a.check(old), old.tls(), trust.ALPNJoin)
	})
	if err != nil {
		return nil, err
	}
	out := &identity{key: key, hubs: old.hubs}
	if err := out.setCertificates(answer.Certificate, answer.CA); err != nil {
		return nil, err
	}
	if out.who != old.who {
		return nil, fault.New(fault.CodeCertInvalid, "the hub renewed to another identity").Whyf("%s instead of %s", out.who, old.who)
	}
	return out, nil
}

func (a *Agent) check(i *identity) func() trust.Check {
	return func() trust.Check {
		return trust.Check{Roots: trust.RootsOf(i.ca), TrustDomain: i.who.TrustDomain, Now: a.now()}
	}
}

// ask posts to each hub address in turn until one answers.
func (a *Agent) ask(ctx context.Context, hubs []string, path string, body any, tlsConfig func() *tls.Config) (admin.JoinAnswer, error) {
	var last error
	for _, hub := range hubs {
		answer, err := a.askOne(ctx, hub, path, body, tlsConfig())
		if err == nil {
			if skew := time.UnixMilli(answer.UnixMillis).Sub(a.now()); skew.Abs() > limit.ClockTolerance {
				a.log.Warn("this machine's clock differs from the hub's", "by", skew.Round(time.Second))
			}
			return answer, nil
		}
		last = err
		if !fault.Has(err, fault.CodeHubAway) {
			return answer, err // an answer is an answer; another hub would not know better
		}
	}
	return admin.JoinAnswer{}, last
}

func (a *Agent) askOne(ctx context.Context, hub, path string, body any, cfg *tls.Config) (answer admin.JoinAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit.Dial)
	defer cancel()
	data, err := json.Marshal(body)
	if err != nil {
		return answer, err
	}
	client := &http.Client{
		Transport: &http.Transport{
			DialContext: carrier.Dialer().DialContext, TLSClientConfig: cfg, DisableKeepAlives: true,
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
		return answer, hubFault(hub, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, limit.AdminBody))
	if err != nil {
		return answer, hubFault(hub, err)
	}
	if res.StatusCode != http.StatusOK {
		var f admin.FaultBody
		if json.Unmarshal(text, &f) == nil && f.Code != "" {
			return answer, f.Fault()
		}
		return answer, fault.Newf(fault.CodeHubAway, "%s answered %s", hub, res.Status).Whyf("it does not seem to be a hub")
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, fault.Newf(fault.CodeHubAway, "the answer of %s cannot be read", hub).Because(err)
	}
	return answer, nil
}

// hubFault codes a failure to reach a hub; what the verification of its
// certificate said passes.
func hubFault(hub string, err error) error {
	var f *fault.Fault
	if errors.As(err, &f) {
		return f
	}
	return fault.Newf(fault.CodeHubAway, "the hub %s cannot be reached", hub).Because(err).
		Hint("check the address, the way through firewalls (TCP), and that the hub runs")
}
