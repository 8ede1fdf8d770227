// SPDX-License-Identifier: Apache-2.0

//go:build lab

package lab_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-io/tombolo/test/lab"
)

// portMapped asks the place's router by NAT-PMP (RFC 6886) for its address and
// for a UDP port, 0 for any, and returns both.
func portMapped(t testing.TB, p *lab.Place, inner, outer uint16) netip.AddrPort {
	t.Helper()
	conn := udp(t, p.Host, "udp4", netip.AddrPortFrom(p.Addr4, 0).String())
	defer conn.Close()
	ask := func(request []byte, size int) []byte {
		answer := make([]byte, 64)
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if _, err := conn.WriteToUDPAddrPort(request, netip.AddrPortFrom(p.Gateway4, 5351)); err != nil {
				t.Fatal(err)
			}
			conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			n, err := conn.Read(answer)
			if err == nil && n >= size && answer[1] == request[1]|128 {
				if code := binary.BigEndian.Uint16(answer[2:]); code != 0 {
					t.Fatalf("NAT-PMP refuses with code %d\n%s", code, p.Mapping.Log())
				}
				return answer[:n]
			}
		}
		t.Fatalf("NAT-PMP does not answer\n%s", p.Mapping.Log())
		return nil
	}
	if outer == 0 {
		outer = inner
	}
	address := ask([]byte{0, 0}, 12)
	request := binary.BigEndian.AppendUint16([]byte{0, 1, 0, 0}, inner)
	request = binary.BigEndian.AppendUint16(request, outer)
	request = binary.BigEndian.AppendUint32(request, 120) // seconds
	port := ask(request, 16)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(address[8:12])), binary.BigEndian.Uint16(port[10:]))
}

// TestPortMapping: a mapping appears on request, other hosts come in through it to
// the port that asked, and it is gone with the service.
func TestPortMapping(t *testing.T) {
	g := against(t, "port-mapped")
	conn := udp(t, g.A.Host, "udp4", ":51820")
	outsider := udp(t, g.Other, "udp4", lab.OtherAddr+":9999")
	at := netip.AddrPortFrom(g.A.Public4, 40000)
	if heard, _ := sendUntilHeard(t, outsider, at, conn, g.A); heard {
		t.Fatal("the port is open before it was asked for")
	}
	if got := portMapped(t, g.A, 51820, 40000); got != at {
		t.Fatalf("mapped at %s, want %s", got, at)
	}
	heard, from := sendUntilHeard(t, outsider, at, conn, g.A)
	if want := netip.MustParseAddrPort(lab.OtherAddr + ":9999"); !heard || from != want {
		t.Errorf("through the mapping: heard %v from %s, want from %s", heard, from, want)
	}
	// The answer leaves by the mapping, though the NAT is symmetric.
	if _, err := conn.WriteToUDPAddrPort([]byte("answer"), from); err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, 100)
	outsider.SetReadDeadline(time.Now().Add(patience))
	if n, source, err := outsider.ReadFromUDPAddrPort(packet); err != nil || source != at || string(packet[:n]) != "answer" {
		t.Errorf("the answer is %q from %s (%v), want it from %s", packet[:n], source, err, at)
	}
	if err := g.A.Mapping.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := g.A.Forget(); err != nil {
		t.Fatal(err)
	}
	if heard, _ := sendUntilHeard(t, outsider, at, conn, g.A); heard {
		t.Error("the mapping outlives the service")
	}
}

// TestUPnP: the router is found by multicast and maps ports by SOAP; secure, only
// to who asks.
func TestUPnP(t *testing.T) {
	for _, secure := range []bool{true, false} {
		t.Run(fmt.Sprint("secure ", secure), func(t *testing.T) {
			t.Parallel()
			g := against(t, "port-mapped")
			if !secure {
				if err := g.A.Mapping.Stop(); err != nil {
					t.Fatal(err)
				}
				var err error
				if g.A.Mapping, err = lab.StartPortMapping(g.A.Router, "lan", "wan", false); err != nil {
					t.Fatal(err)
				}
			}
			root := discover(t, g.A)
			client := &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: g.A.Host.DialContext, DisableKeepAlives: true}}
			control := *root
			control.Path = controlPath(t, client, root)
			other := g.A.Addr4.Next()
			if code := addPortMapping(t, client, control.String(), g.A.Addr4, 40000); code != http.StatusOK {
				t.Errorf("mapping to oneself: HTTP %d", code)
			}
			if code := addPortMapping(t, client, control.String(), other, 40001); (code == http.StatusOK) == secure {
				t.Errorf("mapping to %s: HTTP %d", other, code)
			}
			conn := udp(t, g.A.Host, "udp4", ":51820")
			outsider := udp(t, g.Other, "udp4", lab.OtherAddr+":9999")
			if heard, _ := sendUntilHeard(t, outsider, netip.AddrPortFrom(g.A.Public4, 40000), conn, g.A); !heard {
				t.Error("nothing passes the mapping")
			}
		})
	}
}

const wanService = "urn:schemas-upnp-org:service:WANIPConnection:2"

// discover asks by SSDP where the gateway is described.
func discover(t *testing.T, p *lab.Place) *url.URL {
	t.Helper()
	conn := udp(t, p.Host, "udp4", netip.AddrPortFrom(p.Addr4, 0).String())
	defer conn.Close()
	packet := make([]byte, 1500)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		search := "M-SEARCH * HTTP/1.1\r\nHOST: 239.255.255.250:1900\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\n" +
			"ST: urn:schemas-upnp-org:device:InternetGatewayDevice:1\r\n\r\n"
		if _, err := conn.WriteToUDPAddrPort([]byte(search), netip.MustParseAddrPort("239.255.255.250:1900")); err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(soon))
		n, err := conn.Read(packet)
		if err != nil {
			continue
		}
		answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(packet[:n])), nil)
		if err != nil {
			t.Fatalf("%v: %q", err, packet[:n])
		}
		root, err := url.Parse(answer.Header.Get("Location"))
		if err != nil {
			t.Fatal(err)
		}
		return root
	}
	t.Fatalf("nobody answers SSDP\n%s", p.Mapping.Log())
	return nil
}

// controlPath reads from the description where the WAN connection is controlled.
func controlPath(t *testing.T, client *http.Client, root *url.URL) string {
	t.Helper()
	answer, err := client.Get(root.String())
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), wanService)
	_, after, found2 := strings.Cut(after, "<controlURL>")
	path, _, found3 := strings.Cut(after, "</controlURL>")
	if !found || !found2 || !found3 {
		t.Fatalf("no control URL in %s", text)
	}
	return path
}

func addPortMapping(t *testing.T, client *http.Client, control string, to netip.Addr, outer uint16) int {
	t.Helper()
	body := fmt.Sprintf(`<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" `+
		`s:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"><s:Body><u:AddPortMapping xmlns:u="%s">`+
		`<NewRemoteHost></NewRemoteHost><NewExternalPort>%d</NewExternalPort><NewProtocol>UDP</NewProtocol>`+
		`<NewInternalPort>51820</NewInternalPort><NewInternalClient>%s</NewInternalClient><NewEnabled>1</NewEnabled>`+
		`<NewPortMappingDescription>lab</NewPortMappingDescription><NewLeaseDuration>120</NewLeaseDuration>`+
		`</u:AddPortMapping></s:Body></s:Envelope>`, wanService, outer, to)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, control, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", `text/xml; charset="utf-8"`)
	request.Header.Set("SOAPAction", `"`+wanService+`#AddPortMapping"`)
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}
