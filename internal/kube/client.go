// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"unicode"

	"github.com/tombolo-io/tombolo/internal/fault"
	"github.com/tombolo-io/tombolo/internal/limit"
)

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Client speaks to one API server. It is safe for use by many.
type Client struct {
	access Access
	dial   dialFunc

	mu        sync.Mutex
	transport *http.Transport // nil: the next request makes one from the files
}

// NewClient makes a client. dial may be nil.
func NewClient(a Access, dial dialFunc) *Client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: limit.KubeAnswer}).DialContext
	}
	return &Client{access: a, dial: dial}
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

// The forms that are asked for. Of a Node nothing but its metadata is wanted: the
// rest is many kilobytes.
const (
	asJSON     = "application/json"
	asMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asMetaList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	applyPatch = "application/apply-patch+yaml" // JSON is YAML
	mergePatch = "application/merge-patch+json"
)

// answerError is an answer that is no success.
type answerError struct {
	status int
	reason string
}

func (e *answerError) Error() string { return e.reason }

// answered gives the HTTP status of an error; 0 where there was no answer.
func answered(err error) int {
	var e *answerError
	if errors.As(err, &e) {
		return e.status
	}
	return 0
}

// do sends a request. The answer is a success, and its body the caller's to close.
func (c *Client) do(ctx context.Context, r call) (*http.Response, error) {
	t, err := c.connection()
	if err != nil {
		return nil, away(r, err)
	}
	u := *c.access.Server
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
	if !c.access.Token.empty() {
		token, err := c.access.Token.read()
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
		c.drop(t) // the certificate was renewed, perhaps: read it again
	}
	return nil, refused(r, res)
}

// connection is the transport that all requests share.
func (c *Client) connection() (*http.Transport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.transport != nil {
		return c.transport, nil
	}
	t, err := c.access.transport(c.dial)
	if err != nil {
		return nil, err
	}
	c.transport = t
	return t, nil
}

// drop forgets a transport, so that the next request reads the files again.
func (c *Client) drop(t *http.Transport) {
	c.mu.Lock()
	if c.transport == t {
		c.transport = nil
	}
	c.mu.Unlock()
	t.CloseIdleConnections()
}

// Close ends the connections that nobody uses.
func (c *Client) Close() {
	c.mu.Lock()
	t := c.transport
	c.transport = nil
	c.mu.Unlock()
	if t != nil {
		t.CloseIdleConnections()
	}
}

func away(r call, err error) error {
	return fault.Newf(fault.CodeKubeAway, "%s %s at the Kubernetes API", r.method, r.path).Because(err).
		Hint("it is tried again; what is known stays until its lease ends")
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
	return f.Because(cause).Hint("apply what 'tombolo discovery manifest' prints")
}

// shown is what a server wrote, fit for a line of a log.
func shown(s string) string {
	s = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, s)
	if len(s) > limit.KubeMessage {
		s = strings.ToValidUTF8(s[:limit.KubeMessage], "") + "..."
	}
	return s
}

// ask sends a request and reads its answer into out, which may be nil.
func (c *Client) ask(ctx context.Context, r call, out any) error {
	ctx, cancel := context.WithTimeout(ctx, limit.KubeAnswer)
	defer cancel()
	res, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, limit.KubeObject+1))
	switch {
	case err != nil:
		return away(r, err)
	case len(data) > limit.KubeObject:
		return away(r, errTooLarge(limit.KubeObject))
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return away(r, err)
	}
	return nil
}

func errTooLarge(n int) error { return fmt.Errorf("the answer has more than %d bytes", n) }
