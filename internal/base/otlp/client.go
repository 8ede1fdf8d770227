// SPDX-License-Identifier: Apache-2.0

package otlp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/private"
)

// client posts to the endpoint of one signal.
type client struct {
	Endpoint
	http *http.Client
}

// errRefused is the error of a request that the collector rejected for good: a retry
// would be rejected again.
var errRefused = errors.New("the collector rejects the request")

func newClient(e Endpoint) (*client, error) {
	c := &client{Endpoint: e}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CAFile != "" {
		text, err := private.ReadPublic(e.CAFile, limit.PrivateFile)
		if err != nil {
			return nil, fault.New(fault.CodeConfig, "the CA of the collector cannot be read").Because(err).Hint("correct caFile")
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fault.Newf(fault.CodeConfig, "there is no certificate in %s", e.CAFile).
				Hint("correct caFile; PEM is expected")
		}
	}
	if _, err := c.headers(); fault.Has(err, fault.CodeSecret) {
		return nil, err
	} else if err != nil {
		return nil, fault.New(fault.CodeConfig, "the headers for the collector cannot be read").Because(err).
			Hint("correct headersFile")
	}
	c.http = &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: cfg, ForceAttemptHTTP2: true, MaxIdleConns: 1, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: e.Timeout, MaxResponseHeaderBytes: limit.RequestHeader,
		},
		// The headers are for this server only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// headers reads the headers file. Its errors quote no value.
func (c *client) headers() (http.Header, error) {
	h := http.Header{}
	if c.HeadersFile == "" {
		return h, nil
	}
	text, err := private.Read(c.HeadersFile, limit.RequestHeader)
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("%s:%d is not Name: value", c.HeadersFile, n)
		}
		h.Add(name, value)
	}
	return h, nil
}

// post sends one request. rejected is the number of items that the collector rejected of
// a request that it accepted.
func (c *client) post(ctx context.Context, body []byte) (rejected int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	if req.Header, err = c.headers(); err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "tombolo")
	res, err := c.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, collectorAnswer))
	switch {
	case res.StatusCode/100 == 2:
		return partial(answer), err
	case !retryable(res.StatusCode):
		return 0, fmt.Errorf("%w: status %d", errRefused, res.StatusCode)
	}
	// its text is not quoted: it may repeat a header
	err = fmt.Errorf("the collector answers with status %d", res.StatusCode)
	if wait := retryAfter(res.StatusCode, res.Header, time.Now()); wait > 0 {
		err = laterError{err, wait}
	}
	return 0, err
}

// retryable reports whether the same request may be sent again (OTLP 1.x, "Retryable
// Response Codes"); every other status rejects it for good.
func retryable(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

func (c *client) close() { c.http.CloseIdleConnections() }

// partial reads how many items were rejected: field 1 of field 1 of
// ExportTraceServiceResponse and ExportLogsServiceResponse. An unreadable answer rejects
// nothing.
func partial(answer []byte) int64 {
	success := field(answer, protowire.BytesType)
	text, n := protowire.ConsumeBytes(success)
	if n < 0 {
		return 0
	}
	rejected, n := protowire.ConsumeVarint(field(text, protowire.VarintType))
	if n < 0 {
		return 0
	}
	return max(0, int64(rejected))
}

// field returns field 1 of a message, nil if there is none of this type.
func field(b []byte, want protowire.Type) []byte {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil
		}
		b = b[n:]
		if number == 1 && kind == want {
			return b
		}
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return nil
		}
		b = b[n:]
	}
	return nil
}
