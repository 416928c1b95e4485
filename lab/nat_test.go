// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"flag"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden rulesets again")

func TestRulesetGolden(t *testing.T) {
	for _, kind := range NATKinds {
		behavior, err := kind.Behavior()
		if err != nil {
			t.Fatal(err)
		}
		c := NATConfig{Kind: kind, InputDrop: true, Inside: []string{"l1", "l2"}, Hairpin: behavior.Mapping == EndpointIndependent}
		golden(t, string(kind), c)
	}
	golden(t, "port-restricted-open", NATConfig{Kind: PortRestricted, Timeout: 60 * time.Second,
		External: netip.MustParseAddr("198.51.100.7"), Outside: "wan0"})
}

func golden(t *testing.T, name string, c NATConfig) {
	t.Run(name, func(t *testing.T) {
		c, err := c.complete()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", "nat", name+".nft")
		if *update {
			if err := os.WriteFile(path, []byte(c.ruleset()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), c.ruleset()); diff != "" {
			t.Errorf("ruleset differs (-want +got):\n%s", diff)
		}
	})
}

func TestNATConfigRefusesWhatCannotBeBuilt(t *testing.T) {
	for _, c := range []struct {
		situation string
		config    NATConfig
		reason    string
	}{
		{"unknown kind", NATConfig{Kind: "cone"}, "full-cone"},
		{"symmetric with hairpin", NATConfig{Kind: SymmetricRandom, Hairpin: true}, "hairpin"},
		{"IPv6 outside", NATConfig{Kind: FullCone, External: netip.MustParseAddr("2001:db8::1")}, "not IPv4"},
		{"fraction of a second", NATConfig{Kind: FullCone, Timeout: 1500 * time.Millisecond}, "seconds"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			_, err := c.config.complete()
			if err == nil || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("error is %v, want one about %q", err, c.reason)
			}
		})
	}
}

// natBench is two inner hosts behind a NAT and three endpoints outside: two
// ports of one address, and another address.
type natBench struct {
	client, other             *net.UDPConn // 192.168.1.2:3551 and 192.168.2.2:3552
	host, hostOther, stranger *net.UDPConn // 203.0.113.1:5000, 203.0.113.1:5001, 203.0.113.2:5000
	inner                     *Node
}

func newNATBench(t *testing.T, c NATConfig) *natBench {
	l, _ := newLab(t)
	c.Inside = []string{"l1", "l2"}
	nat := l.NAT("nat", c)
	a, b, outside := l.Node("client"), l.Node("other"), l.Node("outside")
	l.Link(a, "eth0", nat, "l1")
	l.Link(b, "eth0", nat, "l2")
	l.Link(nat, "e4", outside, "eth0")
	nat.Addr("l1", "192.168.1.1/24").Addr("l2", "192.168.2.1/24").Addr("e4", "203.0.113.10/24")
	a.Addr("eth0", "192.168.1.2/24").Route("default", "192.168.1.1")
	b.Addr("eth0", "192.168.2.2/24").Route("default", "192.168.2.1")
	outside.Addr("eth0", "203.0.113.1/24", "203.0.113.2/24")
	mustDraw(t, l)
	return &natBench{
		client:    listenUDP(t, a, "192.168.1.2:3551"),
		other:     listenUDP(t, b, "192.168.2.2:3552"),
		host:      listenUDP(t, outside, "203.0.113.1:5000"),
		hostOther: listenUDP(t, outside, "203.0.113.1:5001"),
		stranger:  listenUDP(t, outside, "203.0.113.2:5000"),
		inner:     a,
	}
}

func listenUDP(t *testing.T, n *Node, at string) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	err := n.Do(func() (err error) {
		conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(at)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Waits for a datagram: one that must arrive may take long on a busy machine. For
// one that must not, a short wait must do: veth delivers it soon, if at all.
const (
	mustArrive    = 20 * time.Second
	mustNotArrive = 100 * time.Millisecond
)

// send sends one datagram and gives the source the receiver saw, if it arrives; want
// says whether it must.
func send(t *testing.T, from *net.UDPConn, to netip.AddrPort, receiver *net.UDPConn, want bool) (netip.AddrPort, bool) {
	t.Helper()
	text := t.Name() + time.Now().String()
	if _, err := from.WriteToUDPAddrPort([]byte(text), to); err != nil {
		t.Fatal(err)
	}
	wait := mustNotArrive
	if want {
		wait = mustArrive
	}
	_ = receiver.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 512)
	for {
		n, source, err := receiver.ReadFromUDPAddrPort(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return netip.AddrPort{}, false
		}
		if err != nil {
			t.Fatal(err)
		}
		if string(buf[:n]) == text {
			return source, true
		}
	}
}

func address(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

// mapping sends from an inner socket outward and gives the external endpoint.
func mapping(t *testing.T, from, to *net.UDPConn) netip.AddrPort {
	t.Helper()
	source, ok := send(t, from, address(to), to, true)
	if !ok {
		t.Fatalf("nothing from %v reached %v", from.LocalAddr(), to.LocalAddr())
	}
	if source.Addr() != DefaultExternal {
		t.Fatalf("%v saw source %v, want address %v", to.LocalAddr(), source, DefaultExternal)
	}
	return source
}

func TestNATKindsBehaveAsNamed(t *testing.T) {
	for _, kind := range NATKinds {
		t.Run(string(kind), func(t *testing.T) {
			behavior, err := kind.Behavior()
			if err != nil {
				t.Fatal(err)
			}
			b := newNATBench(t, NATConfig{Kind: kind, InputDrop: true})
			if _, in := send(t, b.host, netip.AddrPortFrom(DefaultExternal, 3551), b.client, false); in {
				t.Error("a packet came in before there was a mapping")
			}
			first := mapping(t, b.client, b.host)
			if _, in := send(t, b.host, first, b.client, true); !in {
				t.Error("the answer did not come in")
			}
			want := behavior.Filtering != AddressAndPortDependent
			if _, sameHost := send(t, b.hostOther, first, b.client, want); sameHost != want {
				t.Errorf("other port of a known address comes in: %v, want %v", sameHost, want)
			}
			want = behavior.Filtering == EndpointIndependent
			if _, foreign := send(t, b.stranger, first, b.client, want); foreign != want {
				t.Errorf("other address comes in: %v, want %v", foreign, want)
			}
			second, third := mapping(t, b.client, b.hostOther), mapping(t, b.client, b.stranger)
			if again := mapping(t, b.client, b.host); again != first {
				t.Errorf("mapping to the first endpoint changed from %v to %v", first, again)
			}
			checkMappings(t, behavior, []uint16{first.Port(), second.Port(), third.Port()})
		})
	}
}

// checkMappings looks at the external ports of 3551 to three destinations.
func checkMappings(t *testing.T, b NATBehavior, ports []uint16) {
	t.Helper()
	same := ports[0] == ports[1] && ports[1] == ports[2]
	differ := ports[0] != ports[1] && ports[1] != ports[2] && ports[0] != ports[2]
	if want := b.Mapping == EndpointIndependent; same != want || differ == want {
		t.Errorf("external ports %v do not fit %s mapping", ports, b.Mapping)
	}
	switch b.Ports {
	case PortPreserving:
		if ports[0] != 3551 {
			t.Errorf("first external port is %d, want 3551", ports[0])
		}
	case PortSequential:
		if ports[1] != ports[0]+1 || ports[2] != ports[1]+1 {
			t.Errorf("external ports %v are not sequential", ports)
		}
	case PortRandom:
		if ports[0] == 3551 || ports[1] == ports[0]+1 && ports[2] == ports[1]+1 {
			t.Errorf("external ports %v are not random", ports)
		}
	}
}

func TestPreservingSymmetricKeepsFreshPort(t *testing.T) {
	b := newNATBench(t, NATConfig{Kind: SymmetricPreserving, InputDrop: true})
	mapping(t, b.client, b.host)
	fresh := listenUDP(t, b.inner, "192.168.1.2:3999")
	if got := mapping(t, fresh, b.host).Port(); got != 3999 {
		t.Errorf("a fresh local port is mapped to %d, want 3999", got)
	}
}

func TestHairpin(t *testing.T) {
	for _, kind := range []NATKind{FullCone, AddressRestricted, PortRestricted} {
		for _, hairpin := range []bool{true, false} {
			t.Run(string(kind)+map[bool]string{true: " on", false: " off"}[hairpin], func(t *testing.T) {
				b := newNATBench(t, NATConfig{Kind: kind, InputDrop: true, Hairpin: hairpin})
				mine, theirs := mapping(t, b.client, b.host), mapping(t, b.other, b.host)
				source, ok := send(t, b.client, theirs, b.other, hairpin)
				if ok != hairpin {
					t.Fatalf("hairpinned packet arrived: %v, want %v", ok, hairpin)
				}
				if hairpin && source != mine {
					t.Errorf("it came from %v, want %v", source, mine)
				}
			})
		}
	}
}

// An open input is the trap of real routers: the peer's early packet makes
// state in the box, and our packet to that peer gets another port.
func TestEarlyPacketMovesPortOnlyWithOpenInput(t *testing.T) {
	for _, drop := range []bool{true, false} {
		t.Run(map[bool]string{true: "input dropped", false: "input open"}[drop], func(t *testing.T) {
			b := newNATBench(t, NATConfig{Kind: PortRestricted, InputDrop: drop})
			first := mapping(t, b.client, b.host)
			if _, in := send(t, b.stranger, first, b.client, false); in {
				t.Fatal("an unknown host came in")
			}
			if kept := mapping(t, b.client, b.stranger) == first; kept != drop {
				t.Errorf("port kept: %v, want %v", kept, drop)
			}
		})
	}
}
