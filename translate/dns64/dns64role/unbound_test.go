// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package dns64role

import (
	"crypto"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
)

// unbound starts a recursive name server with one zone and returns its address.
func unbound(t *testing.T, zone, anchor string) netip.AddrPort {
	t.Helper()
	at := free(t)
	cmd := startUnbound(t, at, zone, anchor)
	t.Cleanup(func() { end(cmd) })
	return at
}

func startUnbound(t *testing.T, at netip.AddrPort, zone, anchor string) *exec.Cmd {
	t.Helper()
	c := peers.Unbound{Name: "unbound", Listen: at, Allow: []netip.Prefix{loopbacks}, Zones: []peers.UnboundZone{{Name: "example.net.", Text: zone}}}
	if anchor != "" {
		c.Anchors = []string{anchor}
	}
	command, err := peerstest.Find(t).Unbound(t.TempDir(), c)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd := exec.Command(command.Path, command.Args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	client := &dns.Client{Timeout: time.Second}
	for end := time.Now().Add(patience); ; {
		if _, _, err := client.Exchange(new(dns.Msg).SetQuestion("example.net.", dns.TypeSOA), at.String()); err == nil {
			return cmd
		}
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("unbound does not answer:\n%s", &said)
		}
	}
}

func end(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// dig asks with the program of that name and returns what it prints.
func dig(t *testing.T, at netip.AddrPort, args ...string) string {
	t.Helper()
	program, err := peerstest.Find(t).Program("dig")
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"@" + at.Addr().String(), "-p", fmt.Sprint(at.Port()), "+tries=1", "+timeout=60"}, args...)
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("dig %v: %v\n%s", args, err, out)
	}
	return string(out)
}

const plainZone = `$ORIGIN example.net.
@ 300 IN SOA ns h 1 2 3 4 120
@ 300 IN NS ns
ns 300 IN A 198.51.100.53
v4 500 IN A 198.51.100.7
both 500 IN A 198.51.100.8
both 500 IN AAAA 2001:db8:2::8
www 400 IN CNAME v4
mapped 500 IN AAAA ::ffff:198.51.100.7
mapped 500 IN A 198.51.100.7
old 400 IN DNAME new
a.new 400 IN A 198.51.100.9
`

// many are AAAA records that no datagram takes.
func many() string {
	var b strings.Builder
	for i := range 80 {
		fmt.Fprintf(&b, "many 500 IN AAAA 2001:db8:3::%x\n", i+1)
	}
	return b.String()
}

// TestDig asks through a DNS64 in front of unbound, both of others' making.
func TestDig(t *testing.T) {
	r := serve(t, nil, unbound(t, plainZone+many(), ""))
	for _, tt := range []struct {
		name string
		args []string
		want []string // all stand in what dig prints
		not  []string
	}{
		{"a native address", []string{"both.example.net", "AAAA", "+short"}, []string{"2001:db8:2::8\n"}, []string{"2001:db8:64:"}},
		{"a synthetic address, no older than the SOA allows", []string{"v4.example.net", "AAAA"}, []string{"NOERROR", "120\tIN\tAAAA\t2001:db8:64::c633:6407"}, nil},
		{"over TCP", []string{"v4.example.net", "AAAA", "+tcp"}, []string{"2001:db8:64::c633:6407", "(TCP)"}, nil},
		{"without EDNS", []string{"v4.example.net", "AAAA", "+noedns"}, []string{"2001:db8:64::c633:6407"}, []string{"OPT PSEUDOSECTION"}},
		{"another version of EDNS", []string{"v4.example.net", "AAAA", "+edns=1", "+noednsnegotiation"}, []string{"BADVERS"}, nil},
		{"with options of EDNS", []string{"v4.example.net", "AAAA", "+cookie", "+nsid"}, []string{"2001:db8:64::c633:6407"}, nil},
		{"a CNAME", []string{"www.example.net", "AAAA", "+short"}, []string{"v4.example.net.\n2001:db8:64::c633:6407"}, nil},
		{"a DNAME", []string{"a.old.example.net", "AAAA", "+short"}, []string{"a.new.example.net.\n2001:db8:64::c633:6409"}, nil},
		{"an excluded address", []string{"mapped.example.net", "AAAA", "+short"}, []string{"2001:db8:64::c633:6407"}, []string{"ffff"}},
		{"A is left alone", []string{"v4.example.net", "A", "+short"}, []string{"198.51.100.7\n"}, nil},
		{"no such name", []string{"none.example.net", "AAAA"}, []string{"NXDOMAIN", "SOA"}, nil},
		{"a name with neither", []string{"example.net", "AAAA"}, []string{"NOERROR", "ANSWER: 0", "SOA"}, nil},
		{"CD and DO: no synthesis", []string{"v4.example.net", "AAAA", "+cd", "+dnssec"}, []string{"NOERROR", "ANSWER: 0"}, nil},
		{"a long answer is cut, and fetched by TCP", []string{"many.example.net", "AAAA"}, []string{"Truncated, retrying in TCP mode", "2001:db8:3::50"}, nil},
		{"a long answer is cut to the client's size", []string{"many.example.net", "AAAA", "+bufsize=600", "+ignore"}, []string{"flags: qr tc rd ra"}, nil},
		{"the prefix", []string{"ipv4only.arpa", "AAAA"}, []string{"flags: qr aa rd ra", "2001:db8:64::c000:aa", "2001:db8:64::c000:ab"}, nil},
		{"below ipv4only.arpa", []string{"x.ipv4only.arpa", "AAAA"}, []string{"NXDOMAIN"}, nil},
		{"a reverse name of the prefix", []string{"-x", "2001:db8:64::c000:aa", "+short"}, []string{"ipv4only.arpa."}, nil},
		{"the version", []string{"version.bind", "CH", "TXT"}, []string{"REFUSED"}, []string{"unbound"}},
		{"this host", []string{"localhost", "AAAA"}, []string{"flags: qr aa rd ra", "AAAA\t::1"}, nil},
		{"everything by UDP", []string{"v4.example.net", "ANY", "+notcp", "+ignore"}, []string{"flags: qr tc"}, nil},
		{"no recursion", []string{"v4.example.net", "AAAA", "+norecurse"}, []string{"REFUSED"}, nil},
		{"a zone transfer", []string{"example.net", "AXFR"}, []string{"Transfer failed"}, nil},
		{"capitals", []string{"V4.Example.NET", "AAAA"}, []string{";V4.Example.NET.", "2001:db8:64::c633:6407"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := dig(t, r.at, tt.args...)
			for _, word := range tt.want {
				if !strings.Contains(out, word) {
					t.Errorf("no %q in\n%s", word, out)
				}
			}
			for _, word := range tt.not {
				if strings.Contains(out, word) {
					t.Errorf("%q in\n%s", word, out)
				}
			}
		})
	}
}

// TestUnboundDies has one of two upstreams killed under a DNS64 and started again.
func TestUnboundDies(t *testing.T) {
	first := free(t)
	running := startUnbound(t, first, plainZone, "")
	t.Cleanup(func() { end(running) })
	second := unbound(t, plainZone, "")
	r := serve(t, func(c *Settings) { c.CacheEntries = 0 }, first, second)
	ask := func() {
		t.Helper()
		if out := dig(t, r.at, "v4.example.net", "AAAA", "+short"); out != "2001:db8:64::c633:6407\n" {
			t.Fatalf("answer %q", out)
		}
	}
	ask()
	end(running)
	for range 5 {
		ask()
	}
	if s := r.Status().(Status).Upstreams; s[0].Answers || s[1].Asked == 0 {
		t.Errorf("status %+v", s)
	}
	running = startUnbound(t, first, plainZone, "")
	eventually(t, "the first is back", func() bool { return r.Status().(Status).Upstreams[0].Answers })
	ask()
}

// TestValidatingUpstream has unbound validate a signed zone for the DNS64, in which some
// records are forged.
func TestValidatingUpstream(t *testing.T) {
	zone, anchor := signedZone(t)
	at := unbound(t, zone, anchor)
	trusting := serve(t, func(c *Settings) { c.Trusted = c.Upstreams }, at)
	doubting := serve(t, nil, at)
	const ad, noAD = "flags: qr rd ra ad;", "flags: qr rd ra;"
	for _, tt := range []struct {
		name string
		r    *rig
		args []string
		want []string
	}{
		{"native and valid", trusting, []string{"v6.example.net", "AAAA", "+dnssec"}, []string{ad, "2001:db8:2::1", "RRSIG"}},
		{"synthetic, both answers valid", trusting, []string{"v4.example.net", "AAAA", "+dnssec"}, []string{ad, "2001:db8:64::c633:6407"}},
		{"the same, for a client that knows no DNSSEC", trusting, []string{"v4.example.net", "AAAA"}, []string{noAD, "2001:db8:64::c633:6407"}},
		{"the same, by an upstream that nobody trusts", doubting, []string{"v4.example.net", "AAAA", "+dnssec"}, []string{noAD, "2001:db8:64::c633:6407"}},
		{"a client that validates gets what it validates", trusting, []string{"v4.example.net", "AAAA", "+dnssec", "+cd"}, []string{"ANSWER: 0", "NSEC"}},
		{"a forged A record", trusting, []string{"forged.example.net", "AAAA", "+dnssec"}, []string{"SERVFAIL"}},
		{"a forged A record, unseen", trusting, []string{"forged.example.net", "A", "+dnssec", "+cd"}, []string{"NOERROR", "198.51.100.66"}},
		{"no valid word that there is no AAAA", trusting, []string{"unproven.example.net", "AAAA"}, []string{"SERVFAIL"}},
		{"no such name", trusting, []string{"zzz.example.net", "AAAA", "+dnssec"}, []string{"NXDOMAIN", ad}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := dig(t, tt.r.at, tt.args...)
			for _, word := range tt.want {
				if !strings.Contains(out, word) {
					t.Errorf("no %q in\n%s", word, out)
				}
			}
		})
	}
}

// signedZone signs a zone, with faults at two names, and returns it with its anchor.
func signedZone(t *testing.T) (zone, anchor string) {
	t.Helper()
	key := &dns.DNSKEY{
		Hdr:   dns.RR_Header{Name: "example.net.", Rrtype: dns.TypeDNSKEY, Class: dns.ClassINET, Ttl: 300},
		Flags: dns.ZONE | dns.SEP, Protocol: 3, Algorithm: dns.ECDSAP256SHA256,
	}
	private, err := key.Generate(256)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"example.net.", "forged.example.net.", "ns.example.net.", "unproven.example.net.", "v4.example.net.", "v6.example.net."}
	sets := [][]string{
		{"example.net. 300 IN SOA ns.example.net. h.example.net. 1 2 3 4 120"}, {"example.net. 300 IN NS ns.example.net."},
		{"forged.example.net. 500 IN A 198.51.100.6"}, {"ns.example.net. 300 IN A 198.51.100.53"},
		{"unproven.example.net. 500 IN A 198.51.100.5"}, {"v4.example.net. 500 IN A 198.51.100.7"}, {"v6.example.net. 500 IN AAAA 2001:db8:2::1"},
	}
	var out strings.Builder
	types := map[string][]uint16{}
	signed := func(set ...dns.RR) {
		types[set[0].Header().Name] = append(types[set[0].Header().Name], set[0].Header().Rrtype)
		for _, rr := range append(set, sign(t, key, private.(crypto.Signer), set)) {
			line := rr.String()
			// What was signed is not what is told.
			fmt.Fprintln(&out, strings.Replace(line, "198.51.100.6", "198.51.100.66", 1))
		}
	}
	signed(key)
	for _, set := range sets {
		rr, err := dns.NewRR(set[0])
		if err != nil {
			t.Fatal(err)
		}
		signed(rr)
	}
	for i, name := range names {
		nsec := &dns.NSEC{
			Hdr:        dns.RR_Header{Name: name, Rrtype: dns.TypeNSEC, Class: dns.ClassINET, Ttl: 120},
			NextDomain: names[(i+1)%len(names)], TypeBitMap: append(slices.Clone(types[name]), dns.TypeRRSIG, dns.TypeNSEC),
		}
		if name == "unproven.example.net." {
			nsec.TypeBitMap = append(nsec.TypeBitMap, dns.TypeAAAA) // it says that there is one
		}
		slices.Sort(nsec.TypeBitMap)
		signed(nsec)
	}
	return out.String(), key.ToDS(dns.SHA256).String()
}

func sign(t *testing.T, key *dns.DNSKEY, private crypto.Signer, set []dns.RR) dns.RR {
	t.Helper()
	now := time.Now()
	s := &dns.RRSIG{
		Hdr:       dns.RR_Header{Name: set[0].Header().Name, Rrtype: dns.TypeRRSIG, Class: dns.ClassINET, Ttl: set[0].Header().Ttl},
		Algorithm: key.Algorithm, KeyTag: key.KeyTag(), SignerName: "example.net.",
		Inception: uint32(now.Add(-time.Hour).Unix()), Expiration: uint32(now.Add(24 * time.Hour).Unix()),
	}
	if err := s.Sign(private, set); err != nil {
		t.Fatal(err)
	}
	return s
}
