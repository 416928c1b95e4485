// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

var local = netip.MustParseAddrPort("127.0.0.1:3551")

// patient are times within which also a busy machine answers, for tests in which a
// gateway is not silent.
var patient = times{
	search: testutil.Patience, repeat: usual.repeat, preference: testutil.Patience, request: testutil.Patience,
	question: testutil.Patience, reserve: 5 * testutil.Patience, release: testutil.Patience,
}

var gateways atomic.Uint32

// newAddress is a loopback address that no other test uses.
func newAddress() netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(pid>>8) | 0x80, byte(pid), byte(10 + gateways.Add(1))})
}

// fakeGateway is a gateway on loopback, good unless its fields say otherwise. They are set
// before it is made to speak; after that others read them.
type fakeGateway struct {
	t    *testing.T
	addr netip.Addr
	web  netip.AddrPort // of the HTTP server
	time times

	// UPnP. Each may use the words LOCATION and ADDRESS.
	searchAnswer string
	describe     func(w http.ResponseWriter, r *http.Request)
	control      string // controlURL
	soap         func(w http.ResponseWriter, action string)
	externalIP   string

	// NAT-PMP: answers to the external address and to a mapping.
	address, reserve func(request []byte) []byte

	mu     sync.Mutex
	called []string // calls in order
}

// call notes one.
func (g *fakeGateway) call(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.called = append(g.called, fmt.Sprintf(format, args...))
}

// calls returns what was called, and forgets it.
func (g *fakeGateway) calls() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	called := g.called
	g.called = nil
	return called
}

func newGateway(t *testing.T) *fakeGateway {
	t.Helper()
	return &fakeGateway{
		t: t, addr: newAddress(), time: patient, externalIP: "203.0.113.10", control: "/control",
		searchAnswer: "HTTP/1.1 200 OK\r\nST: " + gatewayDevice + "\r\nLOCATION: LOCATION\r\n\r\n",
		address:      func([]byte) []byte { return natpmpAnswer(128, 0, []byte{203, 0, 113, 10}) },
		reserve: func(r []byte) []byte {
			return natpmpAnswer(129, 0, r[4:8], r[8:12])
		},
	}
}

// natpmpAnswer is an answer of NAT-PMP: version 0, operation, result, time.
func natpmpAnswer(operation byte, result uint16, rest ...[]byte) []byte {
	b := append([]byte{0, operation}, byte(result>>8), byte(result), 0, 0, 0, 1)
	for _, r := range rest {
		b = append(b, r...)
	}
	return b
}

func (g *fakeGateway) target() Target { return Target{Local: local, Gateway: g.addr, times: &g.time} }

// udp answers datagrams at a port of the gateway; again is one that is sent again.
func (g *fakeGateway) udp(port uint16, answer func(request []byte, again bool) []byte) {
	g.t.Helper()
	// Beside whoever listens to the group at all addresses.
	share := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1) })
	}}
	packets, err := share.ListenPacket(g.t.Context(), "udp4", netip.AddrPortFrom(g.addr, port).String())
	if err != nil {
		g.t.Fatal(err)
	}
	conn := packets.(*net.UDPConn)
	g.t.Cleanup(func() { conn.Close() })
	go func() {
		buf, last := make([]byte, 2048), ""
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			// Each question has a socket of its own.
			this := from.String() + string(buf[:n])
			if b := answer(buf[:n], this == last); b != nil {
				_, _ = conn.WriteToUDPAddrPort(b, from)
			}
			last = this
		}
	}()
}

// withNATPMP makes the gateway speak NAT-PMP.
func (g *fakeGateway) withNATPMP() *fakeGateway {
	g.udp(5351, func(r []byte, again bool) []byte {
		call := func(format string, args ...any) {
			if !again {
				g.call(format, args...)
			}
		}
		if len(r) == 2 {
			call("address")
			return g.address(r)
		}
		if lifetime := binary.BigEndian.Uint32(r[8:]); lifetime == 0 {
			call("unmap %d", binary.BigEndian.Uint16(r[4:]))
		} else {
			call("map %d for %d s", binary.BigEndian.Uint16(r[4:]), lifetime)
		}
		return g.reserve(r)
	})
	return g
}

// withUPnP makes the gateway speak UPnP.
func (g *fakeGateway) withUPnP() *fakeGateway {
	g.t.Helper()
	g.web = g.serve(g.addr, http.HandlerFunc(g.http))
	g.udp(ssdpPort, func([]byte, bool) []byte { return []byte(g.fill(g.searchAnswer)) })
	return g
}

// serve serves HTTP at an address until the test ends.
func (g *fakeGateway) serve(a netip.Addr, h http.Handler) netip.AddrPort {
	g.t.Helper()
	listener, err := net.Listen("tcp4", netip.AddrPortFrom(a, 0).String())
	if err != nil {
		g.t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(listener) }()
	g.t.Cleanup(func() { server.Close() })
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

func (g *fakeGateway) fill(s string) string {
	return strings.NewReplacer("LOCATION: LOCATION", "LOCATION: http://"+g.web.String()+"/root.xml", "ADDRESS", g.web.String()).Replace(s)
}

// rootDescription is like that of common routers.
const rootDescription = `<?xml version="1.0"?>
<root xmlns="urn:schemas-upnp-org:device-1-0"><specVersion><major>1</major><minor>0</minor></specVersion>
<URLBase>http://198.51.100.99/</URLBase>
<device><deviceType>urn:schemas-upnp-org:device:InternetGatewayDevice:1</deviceType>
<serviceList><service><serviceType>urn:schemas-upnp-org:service:Layer3Forwarding:1</serviceType><controlURL>/other</controlURL></service></serviceList>
<deviceList><device><deviceType>urn:schemas-upnp-org:device:WANDevice:1</deviceType>
<deviceList><device><deviceType>urn:schemas-upnp-org:device:WANConnectionDevice:1</deviceType>
<serviceList><service><serviceType>urn:schemas-upnp-org:service:WANIPConnection:1</serviceType>
<controlURL>CONTROL</controlURL></service></serviceList>
</device></deviceList></device></deviceList></device></root>`

var actionName = regexp.MustCompile(`#(\w+)"`)
var argument = regexp.MustCompile(`<(New\w+)>([^<]*)</`)

func (g *fakeGateway) http(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/root.xml" {
		if g.describe != nil {
			g.describe(w, r)
			return
		}
		_, _ = io.WriteString(w, strings.Replace(rootDescription, "CONTROL", g.fill(g.control), 1))
		return
	}
	if r.URL.Path != "/control" {
		http.NotFound(w, r)
		return
	}
	text, _ := io.ReadAll(r.Body)
	action := actionName.FindStringSubmatch(r.Header.Get("SOAPACTION"))[1]
	call := action
	for _, a := range argument.FindAllStringSubmatch(string(text), -1) {
		call += fmt.Sprintf(" %s=%q", strings.TrimPrefix(a[1], "New"), a[2])
	}
	g.call("%s", call)
	if g.soap != nil {
		g.soap(w, action)
		return
	}
	g.answer(w, action)
}

// answer answers a call as a good gateway.
func (g *fakeGateway) answer(w io.Writer, action string) {
	inside := ""
	if action == "GetExternalIPAddress" {
		inside = "<NewExternalIPAddress>" + g.externalIP + "</NewExternalIPAddress>"
	}
	fmt.Fprintf(w, `<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" s:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"><s:Body><u:%sResponse xmlns:u="urn:schemas-upnp-org:service:WANIPConnection:1">%s</u:%sResponse></s:Body></s:Envelope>`,
		action, inside, action)
}

// fault answers a call with an error code.
func fault(w http.ResponseWriter, code int) {
	w.WriteHeader(http.StatusInternalServerError)
	fmt.Fprintf(w, `<?xml version="1.0"?><s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/" s:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"><s:Body><s:Fault><faultcode>s:Client</faultcode><faultstring>UPnPError</faultstring><detail><UPnPError xmlns="urn:schemas-upnp-org:control-1-0"><errorCode>%d</errorCode><errorDescription>Evil &#10; words</errorDescription></UPnPError></detail></s:Fault></s:Body></s:Envelope>`, code)
}
