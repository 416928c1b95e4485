// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sctp

import (
	"context"
	"net/netip"
	"slices"
	"testing"
)

func TestAddresses(t *testing.T) {
	for name, c := range map[string]struct{ network, address, want string }{
		"one host":               {"sctp", "192.0.2.1:5000", "192.0.2.1:5000"},
		"two families":           {"sctp", "192.0.2.1/[2001:db8::1]:5000", "192.0.2.1/[2001:db8::1]:5000"},
		"one of them is wanted":  {"sctp6", "192.0.2.1/[2001:db8::1]:5000", "[2001:db8::1]:5000"},
		"named twice":            {"sctp", "192.0.2.1/192.0.2.1:5000", "192.0.2.1:5000"},
		"every host":             {"sctp", ":5000", ":5000"},
		"port by its service":    {"sctp", "192.0.2.1:http", "192.0.2.1:80"},
		"UDP at its usual port":  {"sctp+udp", "192.0.2.1:5000", "192.0.2.1:5000"},
		"UDP at another port":    {"sctp4+udp", "192.0.2.1:5000/40000", "192.0.2.1:5000/40000"},
		"IPv4 in IPv6":           {"sctp", "[::ffff:192.0.2.1]:5000", "192.0.2.1:5000"},
		"no port":                {"sctp", "192.0.2.1", ""},
		"no brackets":            {"sctp", "2001:db8::1:5000", ""},
		"half a bracket":         {"sctp", "[2001:db8::1:5000", ""},
		"nothing between":        {"sctp", "192.0.2.1//192.0.2.2:5000", ""},
		"no address of a family": {"sctp6", "192.0.2.1:5000", ""},
		"UDP is not wanted":      {"sctp", "192.0.2.1:5000/40000", ""},
		"no port of UDP":         {"sctp+udp", "192.0.2.1:5000/70000", ""},
		"of a link alone":        {"sctp", "[fe80::1%eth0]:5000", ""},
		"of a link in IPv6":      {"sctp", "[::ffff:169.254.0.1]:5000", ""},
		"another network":        {"tcp", "192.0.2.1:5000", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := resolve(c.network, c.address)
			switch {
			case err != nil && c.want != "":
				t.Error(err)
			case err == nil && got.String() != c.want:
				t.Errorf("got %q, want %q", got, c.want)
			case err == nil:
				again, err := resolve(got.Network(), got.String())
				if err != nil || again.String() != got.String() || again.UDP != got.UDP {
					t.Errorf("%v is read as %v, %v", got, again, err)
				}
			}
		})
	}
}

// TestAddressesOfNames takes none of a link alone from what a name server says.
func TestAddressesOfNames(t *testing.T) {
	n, err := parseNetwork("sctp")
	if err != nil {
		t.Fatal(err)
	}
	var found []netip.Addr
	for _, text := range []string{"fe80::1%eth0", "2001:db8::1", "169.254.0.1", "::ffff:169.254.0.1", "::ffff:192.0.2.1", "192.0.2.1"} {
		found = append(found, netip.MustParseAddr(text))
	}
	if got := n.add(nil, found); !slices.Equal(got, []netip.Addr{found[1], found[5]}) {
		t.Errorf("%v", got)
	}
}

func resolve(name, address string) (*Addr, error) {
	n, err := parseNetwork(name)
	if err != nil {
		return nil, err
	}
	return n.resolve(context.Background(), address, DefaultUDPPort)
}
