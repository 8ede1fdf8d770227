// SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tombolo-io/tombolo/internal/base/limit"
	"github.com/tombolo-io/tombolo/internal/base/run"
	"github.com/tombolo-io/tombolo/internal/mesh/nat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// loop gives each test a router of its own: loopback has enough addresses.
func loop(t *testing.T, n byte) Router {
	r := Router{Gateway: netip.AddrFrom4([4]byte{127, 83, 0, n}), Own: netip.MustParseAddr("127.0.0.1")}
	return r
}

// pmp is a router that speaks NAT-PMP, and keeps what it is asked.
type pmp struct {
	mu       sync.Mutex
	asked    [][]byte
	external [4]byte
	life     uint32
	edit     func(answer []byte) []byte // nil: none
}

func (p *pmp) serve(t *testing.T, r Router) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: r.Gateway.AsSlice(), Port: 5351})
	if err != nil {
		t.Fatal(err)
	}
	g := run.NewGroup(t.Context())
	g.Do(func(context.Context) {
		b := make([]byte, 100)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if answer := p.answer(b[:n]); answer != nil {
				conn.WriteToUDPAddrPort(answer, from)
			}
		}
	})
	t.Cleanup(func() {
		conn.Close()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func (p *pmp) answer(ask []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, append([]byte(nil), ask...))
	answer := []byte{0, ask[1] | 128, 0, 0, 0, 0, 0, 1}
	if ask[1] == 0 {
		answer = append(answer, p.external[:]...)
	} else {
		answer = append(answer, ask[4:8]...)
		life := min(p.life, binary.BigEndian.Uint32(ask[8:]))
		answer = binary.BigEndian.AppendUint32(answer, life)
	}
	if p.edit != nil {
		answer = p.edit(answer)
	}
	return answer
}

// maps lists the wishes: port, outer port and seconds.
func (p *pmp) maps() (out [][3]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.asked {
		if len(a) == 12 && a[1] == 1 {
			out = append(out, [3]int{int(binary.BigEndian.Uint16(a[4:])), int(binary.BigEndian.Uint16(a[6:])), int(binary.BigEndian.Uint32(a[8:]))})
		}
	}
	return out
}

func TestPMP(t *testing.T) {
	public := [4]byte{203, 0, 113, 5}
	for name, c := range map[string]struct {
		p    *pmp
		want string // endpoint, or a part of the reason
		life time.Duration
	}{
		"a port":             {p: &pmp{external: public, life: 3600}, want: "203.0.113.5:51820", life: time.Hour},
		"behind another NAT": {p: &pmp{external: [4]byte{100, 64, 0, 9}, life: 3600}, want: "100.64.0.9:51820", life: time.Hour},
		"private outside":    {p: &pmp{external: [4]byte{192, 168, 1, 2}, life: 3600}, want: "192.168.1.2:51820", life: time.Hour},
		"another port outside": {p: &pmp{external: public, life: 3600, edit: func(b []byte) []byte {
			if len(b) == 16 {
				b[10], b[11] = 0x10, 0
			}
			return b
		}}, want: "203.0.113.5:4096", life: time.Hour},
		"another port of ours": {p: &pmp{external: public, life: 3600, edit: func(b []byte) []byte {
			if len(b) == 16 {
				b[8], b[9] = 0, 22
			}
			return b
		}}, want: "port 22"},
		"no address":     {p: &pmp{life: 3600}, want: "cannot be"},
		"loopback":       {p: &pmp{external: [4]byte{127, 0, 0, 1}, life: 3600}, want: "cannot be"},
		"multicast":      {p: &pmp{external: [4]byte{224, 0, 0, 1}, life: 3600}, want: "cannot be"},
		"link-local":     {p: &pmp{external: [4]byte{169, 254, 0, 1}, life: 3600}, want: "cannot be"},
		"of no use":      {p: &pmp{external: public, life: 3}, want: "for 3s only"},
		"refused":        {p: &pmp{external: public, edit: func(b []byte) []byte { b[3] = 2; return b }}, want: "Refused"},
		"PCP":            {p: &pmp{external: public, edit: func(b []byte) []byte { b[0] = 2; b[3] = 1; return b }}, want: "version"},
		"truncated":      {p: &pmp{external: public, edit: func(b []byte) []byte { return b[:2] }}, want: "size"},
		"too long":       {p: &pmp{external: public, edit: func(b []byte) []byte { return append(b, make([]byte, 900)...) }}, want: "size"},
		"another opcode": {p: &pmp{external: public, edit: func(b []byte) []byte { b[1] = 130; return b }}, want: "opcode"},
		"port 0": {p: &pmp{external: public, life: 3600, edit: func(b []byte) []byte {
			if len(b) == 16 {
				b[10], b[11] = 0, 0
			}
			return b
		}}, want: "cannot be"},
	} {
		t.Run(name, func(t *testing.T) {
			r := loop(t, 1)
			c.p.serve(t, r)
			by, got := try(t.Context(), []Mapper{PMP{}}, r, 51820)
			if by == nil {
				if len(got.Tried) != 1 || !strings.Contains(got.Tried[0].Why, c.want) || c.life != 0 {
					t.Errorf("%+v, want %s", got, c.want)
				}
				for _, m := range c.p.maps() {
					if m[0] != 51820 {
						t.Errorf("asked for port %d", m[0])
					}
				}
				return
			}
			if got.External.String() != c.want || got.Lifetime != c.life || got.Method != "nat-pmp" {
				t.Errorf("%+v, want %s for %v", got, c.want, c.life)
			}
		})
	}
}

func TestARouterThatIsSilentIsLeftInTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	by, got := try(ctx, []Mapper{PMP{}, UPnP{search: "127.83.0.2:1900"}}, loop(t, 2), 51820)
	if by != nil || len(got.Tried) != 2 || got.Tried[0].Why == "" || got.Tried[1].Why == "" {
		t.Errorf("%+v", got)
	}
}

func TestNoRouter(t *testing.T) {
	for _, r := range []Router{{}, {Gateway: netip.MustParseAddr("fe80::1"), Own: netip.MustParseAddr("fe80::2")}} {
		if by, got := try(t.Context(), Mappers(), r, 51820); by != nil || len(got.Tried) != 1 || got.Tried[0].Why == "" {
			t.Errorf("%+v", got)
		}
	}
}

// igd is a router that speaks UPnP.
type igd struct {
	mu       sync.Mutex
	soap     []string // actions and arguments
	external string
	location func(own string) string // what the search answers; nil: the truth
	describe func(w http.ResponseWriter)
	control  string
	add      func(body string) (code int) // of UPnP; nil: 0
	from     netip.Addr                   // who answers the search; not valid: the router
}

const description = `<?xml version="1.0"?><root xmlns="urn:schemas-upnp-org:device-1-0"><device>
<deviceType>urn:schemas-upnp-org:device:InternetGatewayDevice:1</deviceType><deviceList><device><deviceList><device><serviceList><service>
<serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType><serviceId>x</serviceId><controlURL>%s</controlURL></service></serviceList>
</device></deviceList></device></deviceList></device></root>`

func (i *igd) serve(t *testing.T, r Router) UPnP {
	ln, err := net.Listen("tcp", netip.AddrPortFrom(r.Gateway, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(i.web))
	srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: r.Gateway.AsSlice()})
	if err != nil {
		t.Fatal(err)
	}
	out := conn
	if i.from.IsValid() {
		if out, err = net.ListenUDP("udp4", &net.UDPAddr{IP: i.from.AsSlice()}); err != nil {
			t.Fatal(err)
		}
	}
	g := run.NewGroup(t.Context())
	g.Do(func(context.Context) {
		b := make([]byte, 2000)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if !strings.HasPrefix(string(b[:n]), "M-SEARCH * HTTP/1.1\r\n") {
				continue
			}
			location := srv.URL + "/root.xml"
			if i.location != nil {
				location = i.location(location)
			}
			out.WriteToUDPAddrPort([]byte("HTTP/1.1 200 OK\r\nST: x\r\nLOCATION: "+location+"\r\n\r\n"), from)
		}
	})
	t.Cleanup(func() {
		conn.Close()
		out.Close()
		srv.Close()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
	return UPnP{search: conn.LocalAddr().String()}
}

func (i *igd) web(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path == "/root.xml" {
		if i.describe != nil {
			i.describe(w)
			return
		}
		control := i.control
		if control == "" {
			control = "/control"
		}
		fmt.Fprintf(w, description, control)
		return
	}
	body, _ := io.ReadAll(req.Body)
	action := strings.Trim(req.Header.Get("SOAPACTION"), `"`)
	action = action[strings.LastIndex(action, "#")+1:]
	i.mu.Lock()
	i.soap = append(i.soap, action+" "+string(body))
	i.mu.Unlock()
	inner := ""
	switch action {
	case "GetExternalIPAddress":
		inner = "<NewExternalIPAddress>" + i.external + "</NewExternalIPAddress>"
	case "AddPortMapping":
		if i.add != nil {
			if code := i.add(string(body)); code != 0 {
				w.WriteHeader(500)
				fmt.Fprintf(w, `<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><s:Fault><faultcode>s:Client</faultcode><faultstring>UPnPError</faultstring>`+
					`<detail><UPnPError><errorCode>%d</errorCode><errorDescription>no</errorDescription></UPnPError></detail></s:Fault></s:Body></s:Envelope>`, code)
				return
			}
		}
	}
	fmt.Fprintf(w, `<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><u:%sResponse xmlns:u="x">%s</u:%sResponse></s:Body></s:Envelope>`, action, inner, action)
}

func (i *igd) actions() (out []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, s := range i.soap {
		name, _, _ := strings.Cut(s, " ")
		out = append(out, name)
	}
	return out
}

func TestUPnP(t *testing.T) {
	for name, c := range map[string]struct {
		i       *igd
		want    string // endpoint, or a part of the reason
		actions string
	}{
		"a port": {i: &igd{external: "203.0.113.5"}, want: "203.0.113.5:51820", actions: "GetExternalIPAddress AddPortMapping"},
		"only for ever": {i: &igd{external: "203.0.113.5", add: func(body string) int {
			if strings.Contains(body, "<NewLeaseDuration>0<") {
				return 0
			}
			return 725
		}}, want: "203.0.113.5:51820", actions: "GetExternalIPAddress AddPortMapping AddPortMapping"},
		"taken":                  {i: &igd{external: "203.0.113.5", add: func(string) int { return 718 }}, want: "code 718"},
		"no address":             {i: &igd{external: ""}, want: "outer address"},
		"nonsense for one":       {i: &igd{external: strings.Repeat("x", 9000)}, want: "outer address"},
		"loopback":               {i: &igd{external: "127.0.0.1"}, want: "cannot be", actions: "GetExternalIPAddress AddPortMapping DeletePortMapping"},
		"IPv6":                   {i: &igd{external: "2001:db8::1"}, want: "cannot be"},
		"a location elsewhere":   {i: &igd{location: func(string) string { return "http://127.0.0.1:1/root.xml" }}, want: "no answer of the router"},
		"a location with a name": {i: &igd{location: func(string) string { return "http://localhost/root.xml" }}, want: "no answer of the router"},
		"a file":                 {i: &igd{location: func(string) string { return "file:///etc/passwd" }}, want: "no answer of the router"},
		"a stranger answers":     {i: &igd{from: netip.MustParseAddr("127.83.9.9")}, want: "no answer of the router"},
		"control elsewhere":      {i: &igd{control: "http://127.0.0.1:1/control"}, want: "no service"},
		"redirects": {i: &igd{describe: func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(302)
		}}, want: "sends elsewhere"},
		"huge": {i: &igd{describe: func(w http.ResponseWriter) {
			io.WriteString(w, `<?xml version="1.0"?><root xmlns="urn:schemas-upnp-org:device-1-0">`)
			for range 2 * gatewayDocument / 4 {
				if _, err := io.WriteString(w, "<a/>"); err != nil {
					return
				}
			}
		}}, want: "more than"},
		"no XML":    {i: &igd{describe: func(w http.ResponseWriter) { io.WriteString(w, "<<<") }}, want: "description"},
		"not found": {i: &igd{describe: func(w http.ResponseWriter) { w.WriteHeader(404) }}, want: "HTTP 404"},
		"no service": {i: &igd{describe: func(w http.ResponseWriter) {
			io.WriteString(w, `<root xmlns="urn:schemas-upnp-org:device-1-0"><device/></root>`)
		}}, want: "no service"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			if c.want == "no answer of the router" { // which is waited for
				var cancel func()
				ctx, cancel = context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
			}
			r := loop(t, 3)
			by, got := try(ctx, []Mapper{c.i.serve(t, r)}, r, 51820)
			if by != nil && (got.External.String() != c.want || got.Lifetime != gatewayLife) ||
				by == nil && (len(got.Tried) != 1 || !strings.Contains(got.Tried[0].Why, c.want)) {
				t.Errorf("%+v, want %s", got, c.want)
			}
			if c.actions != "" && strings.Join(c.i.actions(), " ") != c.actions {
				t.Errorf("asked %v, want %s", c.i.actions(), c.actions)
			}
			for _, s := range c.i.soap {
				if strings.HasPrefix(s, "AddPortMapping") && (!strings.Contains(s, "<NewInternalClient>127.0.0.1<") || !strings.Contains(s, "<NewInternalPort>51820<") ||
					!strings.Contains(s, "<NewProtocol>UDP<") || !strings.Contains(s, "<NewRemoteHost></")) {
					t.Errorf("asked for %s", s)
				}
			}
		})
	}
}

func TestAKeeperRenewsAndRemoves(t *testing.T) {
	p := &pmp{external: [4]byte{203, 0, 113, 5}, life: 3600}
	r := loop(t, 4)
	p.serve(t, r)
	told, changed := make(chan nat.PortMapping, 8), make(chan struct{})
	asked := 0
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	g := run.NewGroup(ctx)
	k := Keeper{Ways: []Mapper{PMP{}}, Port: 51820, Router: func() (Router, error) { return r, nil }, Tell: func(m nat.PortMapping) { told <- m },
		Asked: func(nat.PortMapping) { asked++ }}
	g.Go("keeper", func(ctx context.Context) error { return k.Run(ctx, changed) })
	if m := <-told; m.Method != "nat-pmp" || m.External.String() != "203.0.113.5:51820" || k.next(m) != limit.GatewayLook || k.next(nat.PortMapping{Method: "upnp", Lifetime: 4 * time.Minute}) != 2*time.Minute {
		t.Fatalf("%+v", m)
	}
	changed <- struct{}{}
	changed <- struct{}{} // taken when the question after the first is over
	p.mu.Lock()
	p.external = [4]byte{203, 0, 113, 6}
	p.mu.Unlock()
	changed <- struct{}{}
	if m := <-told; m.External.String() != "203.0.113.6:51820" {
		t.Errorf("%+v", m)
	}
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	all := p.maps()
	if asked < 3 { // also where nothing is new
		t.Errorf("told of %d questions", asked)
	}
	if len(all) < 4 || all[0] != [3]int{51820, 51820, int(gatewayLife / time.Second)} || all[len(all)-1] != [3]int{51820, 0, 0} {
		t.Errorf("asked for %v", all)
	}
}

func TestAKeeperLeavesARouterForAnother(t *testing.T) {
	one, two := &pmp{external: [4]byte{203, 0, 113, 5}, life: 3600}, &pmp{external: [4]byte{203, 0, 113, 7}, life: 3600}
	a, b := loop(t, 5), loop(t, 6)
	one.serve(t, a)
	two.serve(t, b)
	routers := make(chan Router, 2)
	routers <- a
	routers <- b
	told, changed := make(chan nat.PortMapping, 8), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	g := run.NewGroup(ctx)
	k := Keeper{Ways: []Mapper{PMP{}}, Port: 51820, Router: func() (Router, error) { return <-routers, nil }, Tell: func(m nat.PortMapping) { told <- m }}
	g.Go("keeper", func(ctx context.Context) error { return k.Run(ctx, changed) })
	<-told
	changed <- struct{}{}
	if m := <-told; m.External.String() != "203.0.113.7:51820" {
		t.Errorf("%+v", m)
	}
	if all := one.maps(); all[len(all)-1] != [3]int{51820, 0, 0} {
		t.Errorf("the first router keeps %v", all)
	}
	stop()
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestReasonsAreShortAndPlain(t *testing.T) {
	if s := short(fmt.Errorf("a\x1b[31m\n%s", strings.Repeat("ü", 400))); len(s) > 210 || strings.ContainsAny(s, "\x1b\n") {
		t.Errorf("%q", s)
	}
}
