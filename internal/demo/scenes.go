// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tombolo-io/tombolo/internal/base/fault"
	"github.com/tombolo-io/tombolo/internal/demo/network"
)

func (p *play) build(ctx context.Context, o Options) (string, error) {
	var err error
	p.stage, err = newStage(ctx, o.Program, func(s *stage) error {
		if o.Rootless {
			return s.onLoopback(ctx)
		}
		return s.inNamespaces()
	})
	if err != nil {
		return "", err
	}
	if o.Rootless {
		return "two https backends on the loopback", nil
	}
	return fmt.Sprintf("%d network namespaces: 2 gateways with NAT, 2 https backends", p.stage.network.Hosts()), nil
}

func (p *play) startHub(ctx context.Context) (string, error) {
	s := p.stage
	state := filepath.Join(s.dir, "hub")
	s.hub.args = []string{
		"hub", "--state-dir", state, "--run-dir", s.runDir(),
		"--listen", s.listen, "--advertise", s.front, "--admin-listen", s.admin,
	}
	if err := s.start(s.hub); err != nil {
		return "", err
	}
	err := until(ctx, s.hub, startWithin, func(ctx context.Context) error {
		ca, err := os.ReadFile(filepath.Join(state, "ca.crt"))
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return errors.New("the hub's ca.crt holds no certificate")
		}
		return ready(ctx, s.hub.host, "https://"+s.admin+"/readyz", pool)
	})
	if err != nil {
		return "", fmt.Errorf("waiting for the hub: %w", err)
	}
	return "listens on " + s.listen, nil
}

// ready asks a readiness probe from the machine itself.
func ready(ctx context.Context, host *network.Host, url string, trust *x509.CertPool) error {
	client := &http.Client{Transport: &http.Transport{
		DialContext:       host.DialContext,
		TLSClientConfig:   &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS13},
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return nil
}

func (p *play) startAgents(ctx context.Context) (string, error) {
	for _, site := range p.stage.sites {
		printed, err := p.stage.tombolo(ctx, "token", "create", "--cluster", site.name, "-o", "json")
		if err != nil {
			return "", err
		}
		var token struct {
			Join string `json:"join"`
		}
		if err := json.Unmarshal([]byte(printed), &token); err != nil || token.Join == "" {
			return "", fmt.Errorf("tombolo token create printed no join line (%w)", err)
		}
		site.agent.args = []string{
			"agent", "--join", token.Join, "--state-dir", filepath.Join(p.stage.dir, site.agent.name),
			"--allow", site.allow, "--health-listen", site.health,
		}
		if err := p.stage.start(site.agent); err != nil {
			return "", err
		}
	}
	for _, site := range p.stage.sites {
		err := until(ctx, site.agent, startWithin, func(ctx context.Context) error {
			return ready(ctx, site.agent.host, "http://"+site.health+"/readyz", nil)
		})
		if err != nil {
			return "", fmt.Errorf("waiting for the agent of %s: %w", site.name, err)
		}
	}
	return "c1 and c2 joined, each with a one-time token", nil
}

// showStatus prints what tombolo status prints.
func (p *play) showStatus(ctx context.Context) (string, error) {
	table, err := p.stage.tombolo(ctx, "status")
	if err != nil {
		return "", err
	}
	lines := strings.Split(strings.TrimRight(table, "\n"), "\n")
	p.screen.block(append([]string{p.screen.paint(dim, "$ tombolo status")}, lines...)...)
	return "", nil
}

func (p *play) fetchBoth(ctx context.Context) (string, error) {
	var said []string
	for _, site := range p.stage.sites {
		config, err := p.stage.tombolo(ctx, "egress-config", site.name, "--mode", "connect-uds")
		if err != nil {
			return "", err
		}
		socket, err := socketOf(config)
		if err != nil {
			return "", err
		}
		site.through = throughHub(socket)
		answer, err := site.backend.fetch(ctx, site.through, fetchWithin)
		if err != nil {
			return "", fmt.Errorf("fetching from %s: %w", site.name, err)
		}
		if want := "hello from " + site.name; answer != want {
			return "", fmt.Errorf("fetching from %s: got %q, want %q", site.name, answer, want)
		}
		said = append(said, fmt.Sprintf("%s: https://%s says %q", site.name, site.backend.listener.Addr(), answer))
	}
	return strings.Join(said, "\n"), nil
}

// dialDirectly shows that there is no other way.
func (p *play) dialDirectly(ctx context.Context) (string, error) {
	s := p.stage
	if s.world == nil {
		return "left out: on the loopback everything can be dialled", nil
	}
	site := s.sites[0]
	const within = 1500 * time.Millisecond
	attempt := func(addr string) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		conn, err := s.world.Control.DialContext(ctx, "tcp", addr)
		if err == nil {
			conn.Close()
			return nil
		}
		return err
	}
	private := site.backend.listener.Addr().String()
	routed := attempt(private)
	public := net.JoinHostPort(site.net.Public, "443")
	knocked := attempt(public)
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if routed == nil || knocked == nil {
		return "", errors.New("the control plane could dial into c1 directly: the network is not what it should be")
	}
	dropped, err := site.net.Firewall.Packets()
	if err != nil {
		return "", err
	}
	if dropped == 0 {
		return "", fmt.Errorf("dialling %s failed (%w), but gateway 1 dropped nothing", public, knocked)
	}
	return fmt.Sprintf("%s: %s\n%s (gateway 1): silence, it dropped %d packets",
		private, rootCause(routed), public, dropped), nil
}

// rootCause is the innermost error: what the kernel said.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

func (p *play) refuseMetadata(ctx context.Context) (string, error) {
	const metadata = "169.254.169.254:80"
	ctx, cancel := context.WithTimeout(ctx, fetchWithin)
	defer cancel()
	conn, err := p.stage.sites[0].through(ctx, metadata)
	if err == nil {
		conn.Close()
		return "", fmt.Errorf("the hub opened a connection to %s", metadata)
	}
	r := refused(err)
	if r == nil {
		return "", err
	}
	if r.code != fault.CodePolicyDenied || r.reason == "" {
		return "", fmt.Errorf("%s was refused with code %q, want %q: %w", metadata, r.code, fault.CodePolicyDenied, err)
	}
	return fmt.Sprintf("%s: refused with HTTP %d\n%s", metadata, r.status, r.reason), nil
}

func (p *play) cleanUp(context.Context) (string, error) {
	hosts, err := p.stage.strike()
	return fmt.Sprintf("agents and hub ended by themselves; %d namespaces and the directory are gone", hosts), err
}
