// SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"bufio"
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/huin/goupnp"
	"github.com/huin/goupnp/dcps/internetgateway2"
	"github.com/huin/goupnp/soap"

	"github.com/tombolo-io/tombolo/internal/base/run"
)

// UPnP asks by UPnP IGD. Search and description are done here, for only the default
// gateway may answer: whatever else on the network says that it is a router is
// none of ours.
type UPnP struct {
	search string // for tests; else the group of SSDP
}

const ssdp = "239.255.255.250:1900"

// Method implements Mapper.
func (UPnP) Method() string { return "upnp" }

// service is one that maps ports.
type service struct {
	urn    string
	client *soap.SOAPClient
	close  func()
}

// services lists what can map, the newest first.
func services() []string {
	return []string{internetgateway2.URN_WANIPConnection_2, internetgateway2.URN_WANIPConnection_1,
		internetgateway2.URN_WANPPPConnection_1}
}

// Map implements Mapper.
func (u UPnP) Map(ctx context.Context, r Router, port uint16) (Lease, error) {
	s, err := u.find(ctx, r)
	if err != nil {
		return Lease{}, err
	}
	defer s.close()
	var outer struct{ NewExternalIPAddress string }
	if err := s.do(ctx, "GetExternalIPAddress", nil, &outer); err != nil {
		return Lease{}, err
	}
	addr, err := netip.ParseAddr(outer.NewExternalIPAddress)
	if err != nil {
		return Lease{}, fmt.Errorf("the router's outer address is %.60q", outer.NewExternalIPAddress)
	}
	life := gatewayLife
	err = s.add(ctx, r, port, life)
	var no refusal
	if errors.As(err, &no) && no.code == onlyPermanent {
		err = s.add(ctx, r, port, 0)
	}
	if err != nil {
		return Lease{}, err
	}
	return Lease{netip.AddrPortFrom(addr, port), life}, nil
}

// onlyPermanent is the code of a router that knows no lifetime. It is renewed all the
// same, in case the router forgets.
const onlyPermanent = 725

type portName struct {
	NewRemoteHost   string
	NewExternalPort string
	NewProtocol     string
}

func (s service) add(ctx context.Context, r Router, port uint16, life time.Duration) error {
	in := struct {
		NewRemoteHost             string
		NewExternalPort           string
		NewProtocol               string
		NewInternalPort           string
		NewInternalClient         string
		NewEnabled                string
		NewPortMappingDescription string
		NewLeaseDuration          string
	}{"", fmt.Sprint(port), "UDP", fmt.Sprint(port), r.Own.String(), "1", "tombolo", fmt.Sprint(int(life / time.Second))}
	return s.do(ctx, "AddPortMapping", &in, nil)
}

// Unmap implements Mapper.
func (u UPnP) Unmap(ctx context.Context, r Router, port uint16) error {
	s, err := u.find(ctx, r)
	if err != nil {
		return err
	}
	defer s.close()
	return s.do(ctx, "DeletePortMapping", &portName{"", fmt.Sprint(port), "UDP"}, nil)
}

// refusal is a router's no.
type refusal struct {
	action string
	code   int
	why    string
}

func (r refusal) Error() string {
	return fmt.Sprintf("%s is refused with code %d (%.80q)", r.action, r.code, r.why)
}

func (s service) do(ctx context.Context, action string, in, out any) error {
	if err := s.client.PerformActionCtx(ctx, s.urn, action, in, out); err != nil {
		var fault *soap.SOAPFaultError
		if errors.As(err, &fault) {
			return refusal{action, fault.Detail.UPnPError.Errorcode, fault.Detail.UPnPError.ErrorDescription}
		}
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}

// find searches the router and reads its description.
func (u UPnP) find(ctx context.Context, r Router) (service, error) {
	location, err := u.locate(ctx, r)
	if err != nil {
		return service{}, err
	}
	client, closing := careful(r)
	root, err := describe(ctx, client, location)
	if err != nil {
		closing()
		return service{}, err
	}
	for _, urn := range services() {
		for _, s := range root.Device.FindService(urn) {
			if control := s.ControlURL.URL; s.ControlURL.Ok && at(&control, r) {
				return service{urn, &soap.SOAPClient{EndpointURL: control, HTTPClient: *client}, closing}, nil
			}
		}
	}
	closing()
	return service{}, errors.New("the router describes no service that maps ports")
}

// at reports whether a URL is one of the router.
func at(u *url.URL, r Router) bool {
	a, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "http" && err == nil && a == r.Gateway && u.User == nil
}

// locate asks for routers, and takes the word of the default gateway only.
func (u UPnP) locate(ctx context.Context, r Router) (*url.URL, error) {
	to := u.search
	if to == "" {
		to = ssdp
	}
	group, err := netip.ParseAddrPort(to)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(r.Own, 0)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer run.OnDone(ctx, func() { conn.Close() })()
	for _, urn := range []string{"urn:schemas-upnp-org:device:InternetGatewayDevice:2",
		"urn:schemas-upnp-org:device:InternetGatewayDevice:1"} {
		ask := "M-SEARCH * HTTP/1.1\r\nHOST: " + ssdp + "\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\nST: " + urn + "\r\n\r\n"
		for range 2 { // one may be lost
			if _, err := conn.WriteToUDPAddrPort([]byte(ask), group); err != nil {
				return nil, err
			}
		}
	}
	b := make([]byte, 2048)
	for range gatewayAnswers {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		if err != nil {
			break
		}
		if from.Addr().Unmap() != r.Gateway {
			continue
		}
		if location := locationOf(b[:n]); location != nil && at(location, r) {
			return location, nil
		}
	}
	return nil, errors.New("no answer of the router")
}

// locationOf reads an answer to a search; nil if it is none.
func locationOf(b []byte) *url.URL {
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	u, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil
	}
	return u
}

// careful is a client that goes to the router, without detours, and reads so much of
// what it says.
func careful(r Router) (*http.Client, func()) {
	dialer := &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(r.Own, 0))}
	t := &http.Transport{
		DialContext: dialer.DialContext, MaxResponseHeaderBytes: gatewayDocument, DisableCompression: true,
		DisableKeepAlives: true,
	}
	return &http.Client{
		Transport: bounded{t}, Timeout: gatewayTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the router sends elsewhere") },
	}, t.CloseIdleConnections
}

// bounded bounds the body of every answer.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = &body{resp.Body, gatewayDocument}
	return resp, nil
}

type body struct {
	io.ReadCloser
	left int
}

func (b *body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the router says more than %d bytes", gatewayDocument)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// describe reads a router's description of itself.
func describe(ctx context.Context, client *http.Client, location *url.URL) (*goupnp.RootDevice, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the router's description: HTTP %d", resp.StatusCode)
	}
	root := new(goupnp.RootDevice)
	d := xml.NewDecoder(resp.Body)
	d.DefaultSpace = goupnp.DeviceXMLNamespace
	// names are ASCII in all that we know
	d.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	if err := d.Decode(root); err != nil {
		return nil, fmt.Errorf("the router's description: %w", err)
	}
	base := location
	if u, err := url.Parse(root.URLBaseStr); err == nil && root.URLBaseStr != "" {
		base = u
	}
	root.SetURLBase(base)
	return root, nil
}
