// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// dialer makes one connection to host:port, by whatever way.
type dialer func(ctx context.Context, hostport string) (net.Conn, error)

// refusal is a CONNECT that the hub did not grant.
type refusal struct {
	status int
	code   fault.Code
	reason string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the hub refused with HTTP %d: %s", r.status, r.reason)
}

// refused finds the refusal in an error's chain, or nil.
func refused(err error) *refusal {
	var r *refusal
	if errors.As(err, &r) {
		return r
	}
	return nil
}

// throughHub dials with HTTP CONNECT on a unix socket of the hub, exactly as
// kube-apiserver does.
func throughHub(socket string) dialer {
	return func(ctx context.Context, hostport string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, err
		}
		if err := askConnect(ctx, conn, hostport); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
}

// tcp dials from a machine, without any hub.
func tcp(host *network.Host) dialer {
	return func(ctx context.Context, hostport string) (net.Conn, error) {
		return host.DialContext(ctx, "tcp", hostport)
	}
}

func askConnect(ctx context.Context, conn net.Conn, hostport string) error {
	// The context ends a write that the hub does not take, and a read that waits for its answer.
	stop := run.OnDone(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", hostport, hostport); err != nil {
		return fmt.Errorf("asking the hub for %s: %w", hostport, errors.Join(context.Cause(ctx), err))
	}
	reader := bufio.NewReader(conn)
	resp, err := http.ReadResponse(reader, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return fmt.Errorf("reading the hub's answer for %s: %w", hostport, errors.Join(context.Cause(ctx), err))
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return &refusal{
			status: resp.StatusCode,
			code:   fault.Code(resp.Header.Get("Tombolo-Fault")),
			reason: strings.TrimSpace(string(body)),
		}
	}
	if n := reader.Buffered(); n > 0 {
		return fmt.Errorf("the hub sent %d bytes together with its answer for %s", n, hostport)
	}
	return nil
}

// client speaks HTTPS to one backend over the dialer. Every request makes a
// connection of its own.
func (b *backend) client(dial dialer) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return dial(ctx, addr)
		},
		TLSClientConfig:   &tls.Config{RootCAs: b.trust, MinVersion: tls.VersionTLS13},
		DisableKeepAlives: true,
		ReadBufferSize:    64 << 10,
	}}
}

// fetch returns what the backend says, or why not, within the time.
func (b *backend) fetch(ctx context.Context, dial dialer, within time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := b.request(ctx, "/")
	if err != nil {
		return "", err
	}
	resp, err := b.client(dial).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return "", err
	}
	return string(body), nil
}

func (b *backend) request(ctx context.Context, path string) (*http.Request, error) {
	target := url.URL{Scheme: "https", Host: b.listener.Addr().String(), Path: path}
	return http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
}

// rate downloads for the time and returns bytes per second. The first part,
// in which windows open, is not counted.
func (b *backend) rate(ctx context.Context, dial dialer, warm, counted time.Duration) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second+warm+counted)
	defer cancel()
	req, err := b.request(ctx, "/stream")
	if err != nil {
		return 0, err
	}
	resp, err := b.client(dial).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	buf := make([]byte, 256<<10)
	begin := time.Now()
	var from time.Time
	var bytes int
	for {
		n, err := resp.Body.Read(buf)
		if err != nil {
			return 0, fmt.Errorf("downloading: %w", err)
		}
		now := time.Now()
		switch {
		case from.IsZero() && now.Sub(begin) >= warm:
			from = now
		case !from.IsZero():
			bytes += n
			if took := now.Sub(from); took >= counted {
				return float64(bytes) / took.Seconds(), nil
			}
		}
	}
}

// socketOf finds the unix socket in the configuration that kube-apiserver
// would be given.
func socketOf(egressConfig string) (string, error) {
	var config struct {
		EgressSelections []struct {
			Name       string `yaml:"name"`
			Connection struct {
				Transport struct {
					UDS struct {
						UDSName string `yaml:"udsName"`
					} `yaml:"uds"`
				} `yaml:"transport"`
			} `yaml:"connection"`
		} `yaml:"egressSelections"`
	}
	if err := yaml.Unmarshal([]byte(egressConfig), &config); err != nil {
		return "", fmt.Errorf("reading the EgressSelectorConfiguration: %w", err)
	}
	for _, selection := range config.EgressSelections {
		if name := selection.Connection.Transport.UDS.UDSName; selection.Name == "cluster" && name != "" {
			return name, nil
		}
	}
	return "", errors.New("the EgressSelectorConfiguration names no unix socket for the egress type \"cluster\"")
}
