// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package link

import (
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/internal/testutil"
)

// oneDelegation has a prefix for each association, of which 7 is the one that is bound, and 9 one that
// gets none.
type oneDelegation struct {
	steps  []Step
	beside []uint32
}

func (d *oneDelegation) Delegate(s Step, a Association) (Delegated, bool) {
	d.steps, d.beside = append(d.steps, s), a.Beside
	if a.IAID == 9 || s >= Extend && a.IAID != 7 || string(a.Client) != "\x00\x03\x00\x01\x02\x00\x00\x00\x00\x01" {
		return Delegated{}, false
	}
	one := Delegated{Prefix: netip.MustParsePrefix("2001:db8:6:100::/57"), Lifetime: 1000 * time.Second}
	if a.IAID == 8 {
		one.Prefix = netip.MustParsePrefix("2001:db8:6:180::/57")
	} else if a.Exclude {
		one.Prefix, one.Excluded = netip.MustParsePrefix("2001:db8:dead:bee0::/59"), netip.MustParsePrefix("2001:db8:dead:beef::/64")
	}
	return one, true
}

func delegating(t testing.TB) *Router {
	t.Helper()
	s := settings()
	s.Delegate = true
	r, err := New(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Options of clients and of answers: associations of prefixes.
const (
	pd7     = "0019 000c 00000007 00000000 00000000"
	pd8     = "0019 000c 00000008 00000000 00000000"
	pd9     = "0019 000c 00000009 00000000 00000000"
	pdHint  = "0019 0029 00000007 00000000 00000000 001a 0019 00000000 00000000 38 00000000000000000000000000000000"
	rapid   = "000e 0000"
	exclude = "0006 0002 0043"

	gives7  = "0019 0029 00000007 000001f4 00000320 001a 0019 000003e8 000003e8 39 20010db8000601000000000000000000"
	gives8  = "0019 0029 00000008 000001f4 00000320 001a 0019 000003e8 000003e8 39 20010db8000601800000000000000000"
	leaves7 = "0019 002f 00000007 000001f4 00000320 001a 001f 000003e8 000003e8 3b 20010db8deadbee00000000000000000 0043 0002 40 78"
	none9   = "0019 0012 00000009 00000000 00000000 000d 0002 0006"
	unbound = "0019 0012 00000008 00000000 00000000 000d 0002 0003"
	noAddr  = "0003 0012 00000001 00000000 00000000 000d 0002 0002"
	noTemp  = "0004 000a 00000001 000d 0002 0002"
	success = "000d 0002 0000"

	// What is given back: the prefix of 57 bits, or that of 59 with what is left out of it, its own and another.
	its     = "0019 0029 00000007 00000000 00000000 001a 0019 00000000 00000000 39 20010db8000601000000000000000000"
	another = "0019 0029 00000007 00000000 00000000 001a 0019 00000000 00000000 39 20010db8000601800000000000000000"
	leftOut = "0019 002f 00000007 00000000 00000000 001a 001f 00000000 00000000 3b 20010db8deadbee00000000000000000 0043 0002 40 78"
	newOut  = "0019 002f 00000007 00000000 00000000 001a 001f 00000000 00000000 3b 20010db8deadbee00000000000000000 0043 0002 40 70"
	emptied = "0019 002d 00000007 00000000 00000000 001a 001d 00000000 00000000 3b 20010db8deadbee00000000000000000 0043 0000"
	strange = "0019 0012 00000007 00000000 00000000 000d 0002 0000"
	noOut   = "0019 002f 00000007 00000000 00000000 001a 001f 00000000 00000000 39 20010db8000601000000000000000000 0043 0002 40 00"
	alone   = "0007 0001 ff" // no other server is to be waited for
)

// TestDelegation shows answers by octets (RFC 8415 section 18.3, RFC 6603 section 4.2), and why
// there is none (RFC 8415 section 16).
func TestDelegation(t *testing.T) {
	ids := serverID + clientID
	for _, row := range []struct {
		name    string
		kind    byte
		options string
		want    Verdict
		answer  string
	}{
		{"solicit", 1, clientID + pd7, DHCPDelegated, "02 abcdef" + ids + gives7 + alone},
		{"solicit with a length wished for", 1, clientID + pdHint, DHCPDelegated, "02 abcdef" + ids + gives7 + alone},
		{"solicit by one who knows what is left out", 1, clientID + pd7 + exclude, DHCPDelegated, "02 abcdef" + ids + leaves7 + alone},
		{"rapid commit", 1, clientID + pd7 + rapid, DHCPDelegated, "07 abcdef" + ids + gives7 + rapid},
		{"rapid commit of nothing", 1, clientID + pd9 + rapid, DHCPReplied, "02 abcdef" + ids + none9},
		{"no prefix", 1, clientID + pd9, DHCPReplied, "02 abcdef" + ids + none9},
		{"two associations", 1, clientID + pd7 + pd8, DHCPDelegated, "02 abcdef" + ids + gives7 + gives8 + alone},
		{"two, of which one gets none", 3, clientID + serverID + pd9 + pd8, DHCPDelegated, "07 abcdef" + ids + none9 + gives8},
		{"addresses beside", 1, clientID + addresses + pd7, DHCPDelegated, "02 abcdef" + ids + noAddr + gives7 + alone},
		{"addresses alone", 1, clientID + addresses + temporary, DHCPReplied, "02 abcdef" + ids + noAddr + noTemp},
		{"solicit without a client", 1, pd7, DHCPMalformed, ""},
		{"solicit with a server", 1, clientID + serverID + pd7, DHCPMalformed, ""},
		{"request", 3, clientID + serverID + pd7, DHCPDelegated, "07 abcdef" + ids + gives7},
		{"request with name servers", 3, clientID + serverID + pd7 + wantsDNS, DHCPDelegated, "07 abcdef" + ids + gives7 + toldDNS},
		{"how often to ask", 3, clientID + serverID + pd9 + "0006 0002 0052", DHCPReplied, "07 abcdef" + ids + none9 + "0052 0004 00000e10"},
		{"request of nobody", 3, serverID + pd7, DHCPMalformed, ""},
		{"request to no one", 3, clientID + pd7, DHCPMalformed, ""},
		{"request to another", 3, clientID + otherID + pd7, DHCPOtherServer, ""},
		{"renew", 5, clientID + serverID + pd7, DHCPDelegated, "07 abcdef" + ids + gives7},
		{"renew without a binding", 5, clientID + serverID + pd8, DHCPReplied, "07 abcdef" + ids + unbound},
		{"renew to no one", 5, clientID + pd7, DHCPMalformed, ""},
		{"renew to another", 5, clientID + otherID + pd7, DHCPOtherServer, ""},
		{"renew of nobody", 5, serverID + pd7, DHCPMalformed, ""},
		{"rebind of nobody", 6, pd7, DHCPMalformed, ""},
		{"release to no one", 8, clientID + pd7, DHCPMalformed, ""},
		{"release to another", 8, clientID + otherID + pd7, DHCPOtherServer, ""},
		{"release of nobody", 8, serverID + pd7, DHCPMalformed, ""},
		{"rebind", 6, clientID + pd7, DHCPDelegated, "07 abcdef" + ids + gives7},
		{"rebind without a binding", 6, clientID + pd8, DHCPReplied, "07 abcdef" + ids + unbound},
		{"rebind with a server", 6, clientID + serverID + pd7, DHCPMalformed, ""},
		{"release", 8, clientID + serverID + pd7, DHCPDelegated, "07 abcdef" + ids + success},
		{"release without a binding", 8, clientID + serverID + pd8, DHCPReplied, "07 abcdef" + ids + success + unbound},
		{"confirm", 4, clientID + addresses, DHCPStateful, ""},
		{"decline", 9, clientID + serverID + addresses, DHCPStateful, ""},
		{"as many associations as there may be", 1, clientID + strings.Repeat(pd9, 7) + pd7, DHCPDelegated, "02 abcdef" + ids + strings.Repeat(none9, 7) + gives7 + alone},
		{"one more", 1, clientID + strings.Repeat(pd9, 8) + pd7, DHCPTooMany, ""},
		{"association cut short", 1, clientID + "0019 000b 00000007 00000000 000000", DHCPMalformed, ""},
		{"option in it cut short", 1, clientID + "0019 0010 00000007 00000000 00000000 001a 0019", DHCPMalformed, ""},
		{"prefix in it cut short", 1, clientID + "0019 0014 00000007 00000000 00000000 001a 0004 00000000", DHCPMalformed, ""},
		{"prefix of 129 bits", 1, clientID + strings.Replace(pdHint, " 38 ", " 81 ", 1), DHCPMalformed, ""},
		{"option in the prefix cut short", 1, clientID + "0019 002b 00000007 00000000 00000000 001a 001b 00000000 00000000 38 00000000000000000000000000000000 0043", DHCPMalformed, ""},
		{"an empty exclusion and two zeros, of dhcpcd 9.4.1", 3, clientID + serverID + "0019 002d 00000007 00000000 00000000 001a 0019 00000000 00000000 38 00000000000000000000000000000000 0043 0000" + exclude + "0000",
			DHCPDelegated, "07 abcdef" + ids + leaves7},
		{"four zeros", 1, clientID + pd7 + "0000 0000", DHCPDelegated, "02 abcdef" + ids + gives7 + alone}, // an option nobody knows
		{"information-request with one", 11, clientID + pd7, DHCPMalformed, ""},
	} {
		var s State
		var d oneDelegation
		l := terminal
		l.Delegations = &d
		b, v := delegating(t).Answer(nil, l, &s, question6(DHCPServers, row.kind, testutil.Unhex(t, row.options)), start)
		if v != row.want || (len(b) > 0) != (row.answer != "") {
			t.Errorf("%s: %v, want %v; %x", row.name, v, row.want, b)
			continue
		}
		if want := testutil.Unhex(t, row.answer); len(b) > 0 && string(dhcpOf(t, b)) != string(want) {
			t.Errorf("%s:\n%x, want\n%x", row.name, dhcpOf(t, b), want)
		}
		if len(b) == 0 && len(d.steps) > 0 {
			t.Errorf("%s: not answered, but steps %v", row.name, d.steps)
		}
	}
}

// TestAssociationsBeside: who delegates hears of all associations of prefixes in a message.
func TestAssociationsBeside(t *testing.T) {
	var s State
	var d oneDelegation
	l := terminal
	l.Delegations = &d
	delegating(t).Answer(nil, l, &s, question6(DHCPServers, MessageSolicit, testutil.Unhex(t, clientID+pd8+addresses+pd7)), start)
	if !slices.Equal(d.beside, []uint32{8, 7}) {
		t.Errorf("%v", d.beside)
	}
}

// TestRelease gives back what an association is bound to, and nothing else (RFC 8415 section 18.3.7): what a client
// leaves out of it must be what it was told (RFC 6603 section 6.2).
func TestRelease(t *testing.T) {
	unbound7 := strings.Replace(unbound, "00000008", "00000007", 1)
	for _, row := range []struct {
		name, options string
		released      bool
		answer        string
	}{
		{"nothing named", pd7, false, ""},
		{"an option that is no prefix", strange, false, ""},
		{"its prefix", its, true, ""},
		{"another prefix", another, false, ""},
		{"not bound", pd8, false, unbound},
		{"with what was left out", leftOut + exclude, true, ""},
		{"with an exclusion that cannot be read", emptied + exclude, true, ""},
		{"with a new exclusion", newOut + exclude, false, unbound7},
		{"with one, and there was none", noOut, false, unbound7},
		{"its own and one that is not bound", its + pd8, true, unbound},
	} {
		var s State
		var d oneDelegation
		l := terminal
		l.Delegations = &d
		b, _ := delegating(t).Answer(nil, l, &s, question6(DHCPServers, MessageRelease, testutil.Unhex(t, clientID+serverID+row.options)), start)
		if want := testutil.Unhex(t, "07 abcdef"+serverID+clientID+success+row.answer); string(dhcpOf(t, b)) != string(want) {
			t.Errorf("%s:\n%x, want\n%x", row.name, dhcpOf(t, b), want)
		}
		if got := slices.Contains(d.steps, Release); got != row.released {
			t.Errorf("%s: released %v", row.name, got)
		}
	}
}

// TestExcluded writes what is left out by the bits between two lengths (RFC 6603 section 4.2).
func TestExcluded(t *testing.T) {
	for _, row := range []struct{ prefix, excluded, want string }{
		{"2001:db8:dead:bee0::/59", "2001:db8:dead:beef::/64", "004300024078"},
		{"2001:db8:6:100::/56", "2001:db8:6:1ff::/64", "0043000240ff"},
		{"2001:db8:6::/48", "2001:db8:6:1ff::/64", "004300034001ff"},
		{"2001:db8:6:1fe::/63", "2001:db8:6:1ff::/64", "004300024080"},
		{"2001:db8::/32", "2001:db8:6:1ff::/64", "0043000540000601ff"},
	} {
		prefix, excluded := netip.MustParsePrefix(row.prefix), netip.MustParsePrefix(row.excluded)
		option := AppendExcluded(nil, prefix, excluded)
		if got := hex.EncodeToString(option); got != row.want {
			t.Errorf("%s without %s: %s, want %s", row.prefix, row.excluded, got, row.want)
		}
		if got, ok := ParseExcluded(prefix, option[4:]); !ok || got != excluded {
			t.Errorf("%s of %s is read as %s, %t", row.want, row.prefix, got, ok)
		}
	}
}

// TestExcludedRefused reads nothing that is not of the prefix, or not as long as it says.
func TestExcludedRefused(t *testing.T) {
	prefix := netip.MustParsePrefix("2001:db8:6:100::/56")
	for name, value := range map[string]string{
		"nothing": "", "a length alone": "40", "no longer than the prefix": "3800", "longer than a link's": "4100", "an octet more": "40ff00", "an octet less": "40",
	} {
		if got, ok := ParseExcluded(prefix, testutil.Unhex(t, value)); ok {
			t.Errorf("%s: %s", name, got)
		}
	}
}
