// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package portmap

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

var same = cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})

// The calls of RFC 6081 section 5.3.3 and 5.3.5.1, argument by argument.
const (
	addCall    = `AddPortMapping RemoteHost="" ExternalPort="3551" Protocol="UDP" InternalPort="3551" InternalClient="127.0.0.1" Enabled="1" PortMappingDescription="TEREDO" LeaseDuration="0"`
	ipCall     = `GetExternalIPAddress`
	deleteCall = `DeletePortMapping RemoteHost="" ExternalPort="3551" Protocol="UDP"`
	deleteOld  = `DeletePortMapping RemoteHost="" ExternalPort="4444" Protocol="UDP"`
)

var (
	upnpOnly   = []Method{UPnP}
	natpmpOnly = []Method{NATPMP}
	both       = []Method{UPnP, NATPMP}
)

var mapped = netip.MustParseAddrPort("203.0.113.10:3551")

func TestReserve(t *testing.T) {
	for _, tt := range []struct {
		name    string
		gateway func(g *fakeGateway)
		methods []Method
		old     record
		want    Mapping
		calls   []string
	}{
		{"UPnP", func(g *fakeGateway) { g.withUPnP() }, upnpOnly, record{},
			Mapping{UPnP, mapped, 0}, []string{addCall, ipCall}},
		{"UPnP, port of an earlier run", func(g *fakeGateway) { g.withUPnP() }, upnpOnly, record{UPnP, netip.Addr{}, 4444},
			Mapping{UPnP, mapped, 0}, []string{deleteOld, addCall, ipCall}},
		{"UPnP behind another NAT", func(g *fakeGateway) { g.externalIP = " 192.168.7.2\n"; g.withUPnP() }, upnpOnly, record{},
			Mapping{UPnP, netip.MustParseAddrPort("192.168.7.2:3551"), 0}, []string{addCall, ipCall}},
		{"UPnP, control by a whole URL", func(g *fakeGateway) { g.control = "http://ADDRESS/control"; g.withUPnP() }, upnpOnly, record{},
			Mapping{UPnP, mapped, 0}, []string{addCall, ipCall}},
		{"NAT-PMP", func(g *fakeGateway) { g.withNATPMP() }, natpmpOnly, record{},
			Mapping{NATPMP, mapped, 2 * time.Hour}, []string{"map 3551 for 7200 s", "address"}},
		{"NAT-PMP, port of an earlier run", func(g *fakeGateway) { g.withNATPMP() }, natpmpOnly, record{NATPMP, netip.Addr{}, 4444},
			Mapping{NATPMP, mapped, 2 * time.Hour}, []string{"unmap 4444", "map 3551 for 7200 s", "address"}},
		{"NAT-PMP, another port and time than asked for", func(g *fakeGateway) {
			g.reserve = func(r []byte) []byte { return natpmpAnswer(129, 0, r[4:6], []byte{0x23, 0x28, 0, 0, 0, 200}) }
			g.withNATPMP()
		}, natpmpOnly, record{},
			Mapping{NATPMP, netip.MustParseAddrPort("203.0.113.10:9000"), 200 * time.Second}, []string{"map 3551 for 7200 s", "address"}},
		{"both spoken: UPnP", func(g *fakeGateway) { g.withUPnP(); g.withNATPMP() }, both, record{},
			Mapping{UPnP, mapped, 0}, []string{addCall, ipCall}},
		{"both allowed, UPnP spoken", func(g *fakeGateway) { g.withUPnP() }, both, record{},
			Mapping{UPnP, mapped, 0}, []string{addCall, ipCall}},
		{"both allowed, NAT-PMP spoken", func(g *fakeGateway) { g.time.preference = 0; g.withNATPMP() }, both, record{},
			Mapping{NATPMP, mapped, 2 * time.Hour}, []string{"map 3551 for 7200 s", "address"}},
		{"both spoken, UPnP refuses", func(g *fakeGateway) {
			g.soap = func(w http.ResponseWriter, _ string) { fault(w, 718) }
			g.withUPnP()
			g.withNATPMP()
		}, both, record{},
			Mapping{NATPMP, mapped, 2 * time.Hour}, []string{addCall, "map 3551 for 7200 s", "address"}},
		{"both spoken, NAT-PMP reserved before", func(g *fakeGateway) { g.withUPnP(); g.withNATPMP() }, both, record{NATPMP, netip.Addr{}, 4444},
			Mapping{UPnP, mapped, 0}, []string{addCall, ipCall}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			tt.gateway(g)
			_, got, err := reserve(t.Context(), tt.methods, g.target(), tt.old)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, same); diff != "" {
				t.Errorf("mapping (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.calls, g.calls()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// A gateway that lies, or someone in its place, gets us to reserve nothing, to
// contact no one else and to wait for long.
func TestHostileGateways(t *testing.T) {
	endless := func(w http.ResponseWriter) {
		chunk := strings.Repeat("<a>", 1000)
		for {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	}
	for _, tt := range []struct {
		name    string
		gateway func(g *fakeGateway, stranger string)
		methods []Method
		want    string // part of the error
		calls   []string
		reason  string
	}{
		{"nobody there", func(g *fakeGateway, _ string) { g.time = usual }, both, "does not answer", nil, "no_gateway"},
		{"search answered for another host", func(g *fakeGateway, stranger string) {
			g.searchAnswer = strings.Replace(g.searchAnswer, "LOCATION: LOCATION", "LOCATION: http://"+stranger+"/root.xml", 1)
			g.withUPnP()
		}, upnpOnly, "does not answer", nil, "answer_of_stranger"},
		{"description by another scheme", func(g *fakeGateway, _ string) {
			g.searchAnswer = strings.Replace(g.searchAnswer, "LOCATION: LOCATION", "LOCATION: file://ADDRESS/etc/passwd", 1)
			g.withUPnP()
		}, upnpOnly, "does not answer", nil, "answer_of_stranger"},
		{"description with a password", func(g *fakeGateway, _ string) {
			g.searchAnswer = strings.Replace(g.searchAnswer, "LOCATION: LOCATION", "LOCATION: http://admin:admin@ADDRESS/root.xml", 1)
			g.withUPnP()
		}, upnpOnly, "does not answer", nil, "answer_of_stranger"},
		{"description by a name", func(g *fakeGateway, _ string) {
			g.searchAnswer = strings.Replace(g.searchAnswer, "LOCATION: LOCATION", "LOCATION: http://localhost/root.xml", 1)
			g.withUPnP()
		}, upnpOnly, "does not answer", nil, "answer_of_stranger"},
		{"search answered for another device", func(g *fakeGateway, _ string) {
			g.searchAnswer = strings.Replace(g.searchAnswer, gatewayDevice, "urn:schemas-upnp-org:device:Printer:1", 1)
			g.withUPnP()
		}, upnpOnly, "does not answer", nil, "answer_of_stranger"},
		{"search answer too large", func(g *fakeGateway, _ string) {
			g.searchAnswer = strings.Replace(g.searchAnswer, "\r\n\r\n", "\r\nX: "+strings.Repeat("x", maxSSDP)+"\r\n\r\n", 1)
			g.withUPnP()
		}, upnpOnly, "does not answer", nil, "answer_of_stranger"},
		{"search answered with noise", func(g *fakeGateway, _ string) { g.searchAnswer = "\x00\xff"; g.withUPnP() }, upnpOnly, "does not answer", nil, "answer_of_stranger"},
		{"redirection", func(g *fakeGateway, stranger string) {
			g.describe = func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://"+stranger+"/root.xml", http.StatusFound)
			}
			g.withUPnP()
		}, upnpOnly, "HTTP status 302", nil, "bad_answer"},
		{"control at another host", func(g *fakeGateway, stranger string) {
			g.control = "http://" + stranger + "/control"
			g.withUPnP()
		}, upnpOnly, "at another host", nil, "answer_of_stranger"},
		{"endless description", func(g *fakeGateway, _ string) {
			g.describe = func(w http.ResponseWriter, _ *http.Request) { endless(w) }
			g.withUPnP()
		}, upnpOnly, "too large", nil, "answer_too_large"},
		{"endless header", func(g *fakeGateway, _ string) {
			g.describe = func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X", strings.Repeat("x", 2*maxHeader))
				w.WriteHeader(http.StatusOK)
			}
			g.withUPnP()
		}, upnpOnly, "makes no sense", nil, "bad_answer"},
		{"description that never ends", func(g *fakeGateway, _ string) {
			g.describe = func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}
			g.time.request = usual.request
			g.withUPnP()
		}, upnpOnly, "in time", nil, "no_gateway"},
		{"description without services", func(g *fakeGateway, _ string) {
			g.describe = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<root><device/></root>") }
			g.withUPnP()
		}, upnpOnly, "no port mappings", nil, "no_gateway"},
		{"description that is no XML", func(g *fakeGateway, _ string) {
			g.describe = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html><p>log in</html>") }
			g.withUPnP()
		}, upnpOnly, "no XML", nil, "bad_answer"},
		{"reservation refused", func(g *fakeGateway, _ string) {
			g.soap = func(w http.ResponseWriter, _ string) { fault(w, 718) }
			g.withUPnP()
		}, upnpOnly, "(upnp error 718)", []string{addCall}, "refused"},
		{"external address refused: reservation undone", func(g *fakeGateway, _ string) {
			g.soap = func(w http.ResponseWriter, action string) {
				if action == ipCall {
					fault(w, 501)
					return
				}
				g.answer(w, action)
			}
			g.withUPnP()
		}, upnpOnly, "(upnp error 501)", []string{addCall, ipCall, deleteCall}, "refused"},
		{"external address missing: reservation undone", func(g *fakeGateway, _ string) { g.externalIP = ""; g.withUPnP() },
			upnpOnly, "makes no sense", []string{addCall, ipCall, deleteCall}, "bad_answer"},
		{"external address 0.0.0.0", func(g *fakeGateway, _ string) { g.externalIP = "0.0.0.0"; g.withUPnP() },
			upnpOnly, "makes no sense", []string{addCall, ipCall, deleteCall}, "bad_answer"},
		{"external address of a group", func(g *fakeGateway, _ string) { g.externalIP = "239.1.1.1"; g.withUPnP() },
			upnpOnly, "makes no sense", []string{addCall, ipCall, deleteCall}, "bad_answer"},
		{"external address of IPv6", func(g *fakeGateway, _ string) { g.externalIP = "2001:db8::1"; g.withUPnP() },
			upnpOnly, "makes no sense", []string{addCall, ipCall, deleteCall}, "bad_answer"},
		{"endless answer to a call", func(g *fakeGateway, _ string) {
			g.soap = func(w http.ResponseWriter, _ string) { endless(w) }
			g.withUPnP()
		}, upnpOnly, "makes no sense", []string{addCall, deleteCall}, "bad_answer"},
		{"call redirected", func(g *fakeGateway, stranger string) {
			g.soap = func(w http.ResponseWriter, _ string) {
				w.Header().Set("Location", "http://"+stranger+"/control")
				w.WriteHeader(http.StatusTemporaryRedirect)
			}
			g.withUPnP()
		}, upnpOnly, "makes no sense", []string{addCall, deleteCall}, "bad_answer"},

		{"NAT-PMP refuses", func(g *fakeGateway, _ string) {
			g.reserve = func(r []byte) []byte { return natpmpAnswer(129, 2, r[4:8], r[8:12]) }
			g.withNATPMP()
		}, natpmpOnly, "(nat-pmp error 2)", []string{"map 3551 for 7200 s"}, "refused"},
		{"NAT-PMP answers another question", func(g *fakeGateway, _ string) {
			g.reserve = func(r []byte) []byte { return natpmpAnswer(130, 0, r[4:8], r[8:12]) }
			g.withNATPMP()
		}, natpmpOnly, "makes no sense", []string{"map 3551 for 7200 s"}, "bad_answer"},
		{"NAT-PMP answer cut short", func(g *fakeGateway, _ string) {
			g.reserve = func([]byte) []byte { return []byte{0, 129} }
			g.withNATPMP()
		}, natpmpOnly, "makes no sense", []string{"map 3551 for 7200 s"}, "bad_answer"},
		{"NAT-PMP reserves another host's port", func(g *fakeGateway, _ string) {
			g.reserve = func(r []byte) []byte { return natpmpAnswer(129, 0, []byte{0, 22}, r[6:8], r[8:12]) }
			g.withNATPMP()
		}, natpmpOnly, "makes no sense", []string{"map 3551 for 7200 s", "address", "unmap 3551"}, "bad_answer"},
		{"NAT-PMP reserves port 0", func(g *fakeGateway, _ string) {
			g.reserve = func(r []byte) []byte { return natpmpAnswer(129, 0, r[4:6], []byte{0, 0}, r[8:12]) }
			g.withNATPMP()
		}, natpmpOnly, "makes no sense", []string{"map 3551 for 7200 s", "address", "unmap 3551"}, "bad_answer"},
		{"NAT-PMP reserves for no time", func(g *fakeGateway, _ string) {
			g.reserve = func(r []byte) []byte { return natpmpAnswer(129, 0, r[4:8], binary.BigEndian.AppendUint32(nil, 1)) }
			g.withNATPMP()
		}, natpmpOnly, "a reservation for 1s", []string{"map 3551 for 7200 s", "address", "unmap 3551"}, "bad_answer"},
		{"NAT-PMP has no address", func(g *fakeGateway, _ string) {
			g.address = func([]byte) []byte { return natpmpAnswer(128, 3, []byte{0, 0, 0, 0}) }
			g.withNATPMP()
		}, natpmpOnly, "(nat-pmp error 3)", []string{"map 3551 for 7200 s", "address", "unmap 3551"}, "refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			stranger := g.serve(newAddress(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				t.Errorf("another host was asked for %s", r.URL)
			}))
			tt.gateway(g, stranger.String())
			ctx, cancel := context.WithTimeout(t.Context(), g.time.reserve)
			defer cancel()
			if tt.reason == "answer_of_stranger" {
				g.time.search = usual.search
			}
			_, got, err := reserve(ctx, tt.methods, g.target(), record{})
			for tt.reason == "answer_of_stranger" && Reason(err) == "no_gateway" && g.time.search < testutil.Patience {
				g.time.search *= 4 // the answer that is not taken came too late
				_, got, err = reserve(ctx, tt.methods, g.target(), record{})
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) || got != (Mapping{}) {
				t.Fatalf("mapping %v, error %v, want %q", got, err, tt.want)
			}
			if reason := Reason(err); reason != tt.reason || !slices.Contains(Reasons, reason) {
				t.Errorf("counted as %s, want %s", reason, tt.reason)
			}
			if strings.Contains(err.Error(), "Evil") {
				t.Errorf("the gateway's words are in the error: %v", err)
			}
			if ctx.Err() != nil {
				t.Errorf("it took more than %v", g.time.reserve)
			}
			if diff := cmp.Diff(tt.calls, g.calls()); diff != "" {
				t.Errorf("calls (-want +got):\n%s", diff)
			}
		})
	}
}

// Another host answers the search of the group first, for itself and for the
// gateway: neither counts, and the gateway is heard after it.
func TestSearchAnswerOfAnotherHost(t *testing.T) {
	g := newGateway(t)
	g.web = netip.AddrPortFrom(g.addr, 80)
	liar := newGateway(t)
	liar.web = netip.AddrPortFrom(liar.addr, 80)
	truth, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(g.addr, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer truth.Close()
	group, err := net.ListenMulticastUDP("udp4", loopback(t), &net.UDPAddr{IP: ssdpGroup.AsSlice(), Port: ssdpPort})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	go func() {
		buf := make([]byte, 2048)
		for {
			_, from, err := group.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			for _, answer := range []string{g.fill(g.searchAnswer), liar.fill(liar.searchAnswer)} {
				_, _ = group.WriteToUDPAddrPort([]byte(answer), from)
			}
			_, _ = truth.WriteToUDPAddrPort([]byte(strings.Replace(g.fill(g.searchAnswer), "/root.xml", "/true.xml", 1)), from)
		}
	}()
	u, err := search(t.Context(), g.target())
	if err != nil || u.Hostname() != g.addr.String() || u.Path != "/true.xml" {
		t.Errorf("taken: %s, %v", u, err)
	}
}

func loopback(t *testing.T) *net.Interface {
	t.Helper()
	link, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

func FuzzSearchAnswer(f *testing.F) {
	gateway := netip.MustParseAddr("192.168.1.1")
	f.Add([]byte("HTTP/1.1 200 OK\r\nST: " + gatewayDevice + "\r\nLOCATION: http://192.168.1.1:5000/root.xml\r\n\r\n"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nST: " + gatewayDevice + "\r\nLOCATION: http://192.168.1.1@198.51.100.1/\r\n\r\n"))
	f.Add([]byte("NOTIFY * HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if u, ok := parseSearchAnswer(b, gateway); ok && (u.Hostname() != gateway.String() || u.Scheme != "http" || u.User != nil) {
			t.Fatalf("taken: %s", u)
		}
	})
}

func FuzzDescription(f *testing.F) {
	gateway := netip.MustParseAddr("192.168.1.1")
	location := &url.URL{Scheme: "http", Host: "192.168.1.1:5000", Path: "/root.xml"}
	for _, control := range []string{"/control", "http://192.168.1.1:80/c", "//198.51.100.1/c", "http://192.168.1.1@198.51.100.1/", "%zz", ""} {
		f.Add([]byte(strings.Replace(rootDescription, "CONTROL", control, 1)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		service, control, err := parseDescription(bytes.NewReader(b), location, gateway)
		if err == nil && (!slices.Contains(services, service) || !at(control, gateway)) {
			t.Fatalf("taken: %s at %s", service, control)
		}
	})
}
