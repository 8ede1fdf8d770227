// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/nftables"

	"github.com/tombolo-io/tombolo/internal/demo/network"
)

// PortMapping is miniupnpd at work on a router: it maps ports when a host of the
// LAN asks by NAT-PMP, PCP or UPnP. It ends with the lab.
type PortMapping struct {
	Process *Process
	tables  *Filter
	log     *log
}

// natPMPPort is where NAT-PMP and PCP are asked (RFC 6886, RFC 6887).
const natPMPPort = 5351

// portMappingPatience bounds its start, portMappingGrace its end.
const (
	portMappingPatience = 10 * time.Second
	portMappingGrace    = 2 * time.Second
)

// StartPortMapping starts miniupnpd between the router's LAN and its way out, which
// needs an outer address that is neither private nor of a documentation range:
// miniupnpd maps nothing otherwise. Secure, it maps ports only to who asks.
func StartPortMapping(h *Host, lan, wan string, secure bool) (*PortMapping, error) {
	program, err := programPath("miniupnpd")
	if err != nil {
		return nil, err
	}
	inside, err := h.Addr4(lan)
	if err != nil {
		return nil, err
	}
	dir, err := h.Network().Dir()
	if err != nil {
		return nil, err
	}
	m := &PortMapping{log: &log{}, tables: h.Filter("miniupnpd",
		network.Chain{Name: "forward"},
		network.Chain{Name: "pre", Type: nftables.ChainTypeNAT,
			Hook: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest},
		network.Chain{Name: "post", Type: nftables.ChainTypeNAT,
			Hook: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource},
	)}
	if err := m.tables.On(); err != nil {
		return nil, err
	}
	word := "no"
	if secure {
		word = "yes"
	}
	base := filepath.Join(dir, h.Name()+"-miniupnpd")
	config := fmt.Sprintf(`ext_ifname=%s
listening_ip=%s
enable_natpmp=yes
enable_upnp=yes
secure_mode=%s
http_port=0
port=0
uuid=00000000-0000-4000-8000-000000000001
upnp_table_name=miniupnpd
upnp_nat_table_name=miniupnpd
upnp_forward_chain=forward
upnp_nat_chain=pre
upnp_nat_postrouting_chain=post
`, wan, lan, word)
	if err := os.WriteFile(base+".conf", []byte(config), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "-d", "-f", base+".conf", "-P", base+".pid") // -d: in the foreground, words to stderr
	cmd.Stdout, cmd.Stderr = m.log, m.log
	if m.Process, err = h.Start(cmd); err != nil {
		return nil, err
	}
	return m, m.awaitReady(h, netip.AddrPortFrom(inside, natPMPPort))
}

// Stop ends the service and takes its mappings away.
func (m *PortMapping) Stop() error {
	_ = m.Process.Stop(portMappingGrace) // its exit code says nothing
	return m.tables.Off()
}

// Log is what miniupnpd has said so far.
func (m *PortMapping) Log() string { return m.log.String() }

// awaitReady asks for the outer address until there is an answer.
func (m *PortMapping) awaitReady(h *Host, at netip.AddrPort) error {
	conn, err := h.ListenUDP("udp4", netip.AddrPortFrom(at.Addr(), 0).String())
	if err != nil {
		return err
	}
	defer conn.Close()
	answer := make([]byte, 64)
	for end := time.Now().Add(portMappingPatience); time.Now().Before(end); {
		select {
		case <-m.Process.Done():
			return fmt.Errorf("miniupnpd ended: %w\n%s", m.Process.Wait(), m.Log())
		default:
		}
		_, _ = conn.WriteToUDPAddrPort([]byte{0, 0}, at) // refused until it listens
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if n, err := conn.Read(answer); err == nil && n >= 12 && answer[1] == 128 && answer[2] == 0 && answer[3] == 0 {
			return nil
		}
	}
	return fmt.Errorf("miniupnpd in %s does not answer:\n%s", h.Name(), m.Log())
}

// programPath finds a program that may stand where only root looks.
func programPath(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	path := filepath.Join("/usr/sbin", program)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not on this machine (apt-get install --no-install-recommends %s, or make deps)", program, program)
	}
	return path, nil
}

// log keeps what a process says.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(data)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
