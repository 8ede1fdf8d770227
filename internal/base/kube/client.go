// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/untrusted"
)

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Client is a client of one API server. It is safe for concurrent use.
type Client struct {
	load func() (Access, error)
	dial dialFunc

	mu  sync.Mutex
	way *way // nil: the next request makes one from the files
}

// way is how the API server is reached now.
type way struct {
	Access
	*http.Transport
}

// NewClient makes a client. dial may be nil.
func NewClient(a Access, dial dialFunc) *Client {
	return NewClientOf(func() (Access, error) { return a, nil }, dial)
}

// NewClientOf makes a client that loads its access for each new connection: a node's
// kubeconfig is written when it joins its cluster, possibly after we started, and again
// when it joins another one.
func NewClientOf(load func() (Access, error), dial dialFunc) *Client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: kubeAnswer}).DialContext
	}
	return &Client{load: load, dial: dial}
}

// call is one request.
type call struct {
	method string
	path   string
	query  url.Values
	accept string // empty: JSON
	kind   string // of the body
	body   []byte
}

// The accepted media types. Of a Node only the metadata is needed: the rest is many
// kilobytes.
const (
	asJSON     = "application/json"
	asMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asMetaList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	applyPatch = "application/apply-patch+yaml" // JSON is YAML
	mergePatch = "application/merge-patch+json"
)

// answerError is an HTTP answer other than success.
type answerError struct {
	status int
	reason string
}

func (e *answerError) Error() string { return e.reason }

// Answered returns the HTTP status of an error; 0 if there was no answer.
func Answered(err error) int {
	var e *answerError
	if errors.As(err, &e) {
		return e.status
	}
	return 0
}

// do sends a request. It returns successful answers only; the caller closes the body.
func (c *Client) do(ctx context.Context, r call) (*http.Response, error) {
	t, err := c.connection()
	if err != nil {
		return nil, away(r, err)
	}
	u := *t.Server
	u.Path = strings.TrimSuffix(u.Path, "/") + r.path
	u.RawQuery = r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, away(r, err)
	}
	req.Header.Set("Accept", asJSON)
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.kind != "" {
		req.Header.Set("Content-Type", r.kind)
	}
	req.Header.Set("User-Agent", "tombolo")
	if !t.Token.empty() {
		token, err := t.Token.read()
		if err != nil {
			return nil, away(r, fmt.Errorf("the token: %w", err))
		}
		req.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	}
	// RoundTrip, not http.Client: a redirect would carry the credentials elsewhere.
	res, err := t.RoundTrip(req)
	if err != nil {
		c.drop(t)
		return nil, away(r, err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusUnauthorized {
		c.drop(t) // the certificate may have been renewed: read it again
	}
	return nil, refused(r, res)
}

// connection returns the transport that all requests share.
func (c *Client) connection() (*way, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.way != nil {
		return c.way, nil
	}
	a, err := c.load()
	if err != nil {
		return nil, err
	}
	t, err := a.transport(c.dial)
	if err != nil {
		return nil, err
	}
	c.way = &way{a, t}
	return c.way, nil
}

// drop forgets a transport, so that the next request reads the files again.
func (c *Client) drop(t *way) {
	c.mu.Lock()
	if c.way == t {
		c.way = nil
	}
	c.mu.Unlock()
	t.CloseIdleConnections()
}

// Close closes idle connections.
func (c *Client) Close() {
	c.mu.Lock()
	t := c.way
	c.way = nil
	c.mu.Unlock()
	if t != nil {
		t.CloseIdleConnections()
	}
}

// away is the fault of a request without a usable answer. An error that is a fault
// already, such as of the kubeconfig, stays unchanged.
func away(r call, err error) error {
	var own *fault.Fault
	if errors.As(err, &own) {
		return err
	}
	f := fault.Newf(fault.CodeKubeAway, "%s %s at the Kubernetes API", r.method, r.path).Because(err).
		Hint("it is tried again; what is known stays until its lease ends")
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		f.Code = fault.CodeCAMismatch
		f.Hint("compare server and certificate-authority of the kubeconfig with the API server's certificate; " +
			"what is known stays until its lease ends")
	}
	return f
}

// refused reads the API server's Status.
func refused(r call, res *http.Response) error {
	var status struct {
		Message string `json:"message"`
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, 64<<10))
	if err == nil && json.Unmarshal(text, &status) != nil {
		status.Message = string(text)
	}
	return refusal(r, res.StatusCode, status.Message)
}

func refusal(r call, status int, message string) error {
	cause := &answerError{status, fmt.Sprintf("%d %s: %s", status, http.StatusText(status), shown(message))}
	f := fault.Newf(fault.CodeKubeAway, "%s %s at the Kubernetes API", r.method, r.path)
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		f.Code = fault.CodeKubeDenied
	case http.StatusNotFound:
		f.Code = fault.CodeNotFound
	case http.StatusUnprocessableEntity:
		f.Code = fault.CodeAnnotation
	}
	return f.Because(cause).Hint("%s", remedy(r, status))
}

// remedy is the next step after a refusal.
func remedy(r call, status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "check the credentials of the kubeconfig: the API server does not accept them, or they have expired"
	case status == http.StatusForbidden && r.path == reviewPath:
		return "bind the ClusterRole system:auth-delegator to the account of the kubeconfig: it may create tokenreviews then"
	case status == http.StatusForbidden && r.path == nodesPath:
		return "apply what 'tombolo discovery manifest --node-annotations' prints, or read no annotations"
	case status == http.StatusNotFound && strings.HasPrefix(r.path, membersPath):
		return "the cluster has no kind Member: apply what 'tombolo discovery manifest' prints"
	case status == http.StatusNotFound && strings.HasPrefix(r.path, nodeConfigsPath):
		return "the cluster has no kind NodeConfig: apply what 'tombolo controller manifest' prints"
	case strings.HasSuffix(r.path, "/"+tenantsKind) && (status == http.StatusNotFound || status == http.StatusForbidden):
		return "apply deploy/kubernetes/edgetenants.yaml; what is known stays"
	case status == http.StatusForbidden, status == http.StatusUnprocessableEntity:
		return "apply what 'tombolo discovery manifest' prints"
	}
	return "it is tried again; what is known stays until its lease ends"
}

// shown makes a server's text safe for a log line.
func shown(s string) string { return untrusted.Text(s, kubeMessage) }

// ask sends a request and decodes the answer into out, which may be nil.
func (c *Client) ask(ctx context.Context, r call, out any) error {
	ctx, cancel := context.WithTimeout(ctx, kubeAnswer)
	defer cancel()
	res, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, kubeObject+1))
	switch {
	case err != nil:
		return away(r, err)
	case len(data) > kubeObject:
		return away(r, errTooLarge(kubeObject))
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return away(r, err)
	}
	return nil
}

func errTooLarge(n int) error { return fmt.Errorf("the answer has more than %d bytes", n) }
