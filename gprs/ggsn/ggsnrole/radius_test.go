// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"bufio"
	"bytes"
	"crypto/md5"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/radius"
	"github.com/isthmus-net/isthmus/internal/testutil"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/lab/peers/peerstest"
)

// radiusUsers are those of the server: by PAP or CHAP, by MSISDN, and by IMSI with what else the
// request must have.
const radiusUsers = `
nemo Cleartext-Password := "arctangent"
	Framed-IP-Address = 10.45.7.7, Framed-IPv6-Prefix = 2001:db8:6000:77::/64, Framed-IPv6-Prefix += 2001:db8:6000:99::/64, Framed-Interface-Id = 0:0:0:9, Class = "gold", Acct-Interim-Interval = 600, Framed-Route = "172.20.1.0/24 0.0.0.0 1", Framed-IPv6-Route = "2001:db8:9000:100::/56 :: 1"
15550100 Cleartext-Password := "15550100"
	Framed-IP-Address = 10.45.8.8, Framed-IPv6-Pool = "gold"
240010000000003 Cleartext-Password := "240010000000003", 3GPP-IMSI == "240010000000003", 3GPP-IMSI-MCC-MNC == "24001", 3GPP-SGSN-Address == 192.0.2.7, 3GPP-GGSN-Address == 192.0.2.1, 3GPP-NSAPI == "5", 3GPP-PDP-Type == 3, 3GPP-Selection-Mode == "0", Called-Station-Id == "internet", NAS-Port-Type == 18, Framed-Protocol == 7, NAS-Identifier == "ggsn"
	Framed-IP-Address = 10.45.9.9
`

// startFreeRADIUS starts a server in the node's namespace, and waits until it can be asked.
func (c *core) startFreeRADIUS(t *testing.T, at netip.AddrPort, secret string) (stop func()) {
	t.Helper()
	return c.startAccounting(t, peers.FreeRADIUS{Listen: at, Secret: secret})
}

// startAccounting does so with a server that may be told of contexts.
func (c *core) startAccounting(t *testing.T, s peers.FreeRADIUS) (stop func()) {
	t.Helper()
	s.Name, s.Client, s.Users = "radius", s.Listen.Addr(), radiusUsers
	command, err := peerstest.Find(t).FreeRADIUS(t.TempDir(), s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(command.Path, command.Args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	says, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	c.ns.Do(t, cmd.Start)
	stop = func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
	t.Cleanup(stop)
	var mu sync.Mutex
	var said strings.Builder
	t.Cleanup(func() {
		if mu.Lock(); t.Failed() {
			t.Log(said.String())
		}
		mu.Unlock()
	})
	ready := make(chan bool, 1)
	go func() {
		for lines := bufio.NewScanner(says); lines.Scan(); {
			if strings.Contains(lines.Text(), "Ready to process requests") { // it says so again and again
				select {
				case ready <- true:
				default:
				}
			}
			mu.Lock()
			fmt.Fprintln(&said, lines.Text())
			mu.Unlock()
		}
		close(ready)
	}()
	select {
	case ok := <-ready:
		if !ok {
			t.Fatal("FreeRADIUS ended")
		}
	case <-time.After(testutil.Patience):
		t.Fatal("FreeRADIUS does not begin")
	}
	return stop
}

// newRADIUSCore is a core whose access point asks a server with a secret at an address.
func newRADIUSCore(t *testing.T, server, apn string) *core {
	secret := filepath.Join(t.TempDir(), "secret")
	writePrivate(t, secret, "xyzzy5461\n")
	node := fmt.Sprintf("radius_timeout = \"2s\"\nradius_tries = 2\nradius_dead_time = \"1s\"\nmax_authorizing = 100\n[[ggsn.radius]]\naddress = %q\nport = 1812\nsigned = true\nsecret_file = %q\n", server, secret)
	return newCore(t, node, "pool4 = [\"10.45.0.0/16\"]\npool6 = [\"2001:db8:6000::/44\"]\nauthenticate = \"radius\"\n"+apn)
}

// writePrivate writes a file that others may not read.
func writePrivate(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// attach asks for a context with options.
func (c *core) attach(t *testing.T, n int, change func(*gtp.CreateRequest)) (r gtp.CreateResponse) {
	t.Helper()
	m := request(n, sgsnAddr[false], gtp.PDPTypeIPv4v6)
	if change != nil {
		change(m)
	}
	c.ask(t, false, 0, m, &r)
	return r
}

// withPAP and withCHAP add what a terminal tells by PAP and CHAP.
func withPAP(user, password string) func(*gtp.CreateRequest) {
	data := append(append([]byte{byte(len(user))}, user...), byte(len(password)))
	return withPPP(gtp.ContainerPAP, gtp.PPP{Code: gtp.PAPRequest, Identifier: 1, Data: append(data, password...)})
}

func withCHAP(user, password string) func(*gtp.CreateRequest) {
	challenge := bytes.Repeat([]byte{0x5a}, 16)
	sum := md5.Sum(append(append([]byte{7}, password...), challenge...)) // RFC 1994 section 4.1
	return withPPP(gtp.ContainerCHAP,
		gtp.PPP{Code: gtp.CHAPChallenge, Identifier: 7, Data: append([]byte{16}, challenge...)},
		gtp.PPP{Code: gtp.CHAPResponse, Identifier: 7, Data: append(append([]byte{16}, sum[:]...), user...)})
}

func withPPP(container gtp.Container, packets ...gtp.PPP) func(*gtp.CreateRequest) {
	return func(m *gtp.CreateRequest) {
		o := gtp.NewPCO(nil)
		for _, p := range packets {
			o, _ = o.Add(container, p.Append(nil))
		}
		m.PCO = gtp.Some(o)
	}
}

// TestFreeRADIUS attaches terminals that FreeRADIUS lets in, by PAP, CHAP and their numbers, with
// the addresses that it names, and others that it does not, by each family.
func TestFreeRADIUS(t *testing.T) {
	for _, at := range []string{nodeAddr[false].String(), nodeAddr[true].String()} {
		t.Run(at, func(t *testing.T) {
			c := newRADIUSCore(t, at, "routed = [\"172.20.0.0/16\", \"2001:db8:9000::/40\"]\nnamed_pools = [\"gold 2001:db8:6008::/46\"]\n")
			c.startFreeRADIUS(t, netip.AddrPortFrom(netip.MustParseAddr(at), 1812), "xyzzy5461")
			c.serve(t)
			number := func(m *gtp.CreateRequest) {
				n, _ := gtp.ParseMSISDN("15550100")
				m.MSISDN = gtp.Some(n)
			}
			for n, one := range []struct {
				what   string
				change func(*gtp.CreateRequest)
				cause  gtp.Cause
				want   string
			}{
				{"PAP", withPAP("nemo", "arctangent"), gtp.CauseAccepted, "10.45.7.7"},
				{"wrong password", withPAP("nemo", "sine"), gtp.CauseUserAuthentication, ""},
				{"number", number, gtp.CauseAccepted, "10.45.8.8"},
				{"IMSI", nil, gtp.CauseAccepted, "10.45.9.9"},
				{"unknown", nil, gtp.CauseUserAuthentication, ""},
				{"wrong CHAP", withCHAP("nemo", "sine"), gtp.CauseUserAuthentication, ""},
			} {
				r := c.attach(t, n, one.change)
				if r.Cause != one.cause || r.Cause.Accepted() && r.EndUserAddress.Value.IPv4 != netip.MustParseAddr(one.want) {
					t.Errorf("%s: %v, %v", one.what, r.Cause, r.EndUserAddress.Value.IPv4)
				}
				if gold := netip.MustParsePrefix("2001:db8:6008::/46"); one.what == "number" && !gold.Contains(r.EndUserAddress.Value.IPv6) {
					t.Errorf("%s: %v is not of the pool that was named", one.what, r.EndUserAddress.Value.IPv6)
				}
				if one.what == "PAP" && r.EndUserAddress.Value.IPv6 != netip.MustParseAddr("2001:db8:6000:77::9") {
					t.Errorf("%s: %v", one.what, r.EndUserAddress.Value.IPv6)
				}
			}
			_, text := program.Call(t, "ggsn", "contexts", "--json", "--socket", c.socket)
			for _, want := range []string{`"172.20.1.0/24"`, `"2001:db8:9000:100::/56"`, `"further6":["2001:db8:6000:99::/64"]`} {
				if !strings.Contains(strings.Join(strings.Fields(text), ""), want) {
					t.Errorf("no %s in %s", want, text)
				}
			}
			// The same terminal comes again, by CHAP, and has its addresses still.
			if r := c.attach(t, 0, withCHAP("nemo", "arctangent")); r.Cause != gtp.CauseAccepted || r.EndUserAddress.Value.IPv4 != netip.MustParseAddr("10.45.7.7") {
				t.Errorf("CHAP: %v, %v", r.Cause, r.EndUserAddress.Value.IPv4)
			}
		})
	}
}

// TestRADIUSAway refuses terminals by cause 204 while the server does not answer, or has another
// secret, and lets them in when it is back.
func TestRADIUSAway(t *testing.T) {
	c := newRADIUSCore(t, nodeAddr[false].String(), "")
	at := netip.AddrPortFrom(nodeAddr[false], 1812)
	c.serve(t)
	if r := c.attach(t, 3, nil); r.Cause != gtp.CauseSystemFailure {
		t.Errorf("without a server: %v", r.Cause)
	}
	stop := c.startFreeRADIUS(t, at, "another secret")
	if r := c.attach(t, 3, nil); r.Cause != gtp.CauseSystemFailure {
		t.Errorf("with another secret: %v", r.Cause)
	}
	stop()
	c.startFreeRADIUS(t, at, "xyzzy5461")
	if r := c.attach(t, 3, nil); r.Cause != gtp.CauseAccepted {
		t.Errorf("when it is back: %v", r.Cause)
	}
}

// TestRADIUSFallback lets terminals in while no server answers, where that is the policy, and refuses those that the
// server does once it is there.
func TestRADIUSFallback(t *testing.T) {
	c := newRADIUSCore(t, nodeAddr[false].String(), "radius_fallback = \"local\"\n")
	c.serve(t)
	if r := c.attach(t, 1, withPAP("nemo", "sine")); r.Cause != gtp.CauseAccepted {
		t.Errorf("without a server: %v", r.Cause)
	}
	c.startFreeRADIUS(t, netip.AddrPortFrom(nodeAddr[false], 1812), "xyzzy5461")
	await(t, func() bool { return c.attach(t, 1, withPAP("nemo", "sine")).Cause == gtp.CauseUserAuthentication })
}

// TestGrantOf has what answers grant, within the bounds of their attributes.
func TestGrantOf(t *testing.T) {
	any4 := func(last byte) func(*radius.Attributes) {
		return func(a *radius.Attributes) { a.Octets(radius.FramedIPAddress, []byte{255, 255, 255, last}) }
	}
	interim := func(seconds uint32) func(*radius.Attributes) {
		return func(a *radius.Attributes) { a.Integer(radius.AcctInterimInterval, seconds) }
	}
	servers := []netip.Addr{netip.MustParseAddr("2001:db8:53::2"), netip.MustParseAddr("2001:db8:53::1")}
	each := func(a *radius.Attributes) {
		for _, one := range servers {
			a.Octets(radius.DNSServerIPv6Address, one.AsSlice())
		}
	}
	array := func(list ...[]byte) func(*radius.Attributes) {
		return func(a *radius.Attributes) { a.GPP(gppDNS6, slices.Concat(list...)) }
	}
	mtu := func(n uint32) func(*radius.Attributes) {
		return func(a *radius.Attributes) { a.Integer(radius.FramedMTU, n) }
	}
	for _, one := range []struct {
		what string
		code radius.Code
		add  func(*radius.Attributes)
		want ggsn.Grant
	}{
		{"the node chooses the address", radius.AccessAccept, any4(254), ggsn.Grant{}},
		{"the terminal does", radius.AccessAccept, any4(255), ggsn.Grant{}},
		{"an interval below the least", radius.AccessAccept, interim(30), ggsn.Grant{Interim: time.Minute}},
		{"the least", radius.AccessAccept, interim(60), ggsn.Grant{Interim: time.Minute}},
		{"a longer one", radius.AccessAccept, interim(61), ggsn.Grant{Interim: 61 * time.Second}},
		{"none", radius.AccessAccept, interim(0), ggsn.Grant{}},
		{"name servers", radius.AccessAccept, each, ggsn.Grant{DNS6: servers}},
		{"3GPP's name servers", radius.AccessAccept, array(servers[1].AsSlice(), servers[0].AsSlice()), ggsn.Grant{DNS6: []netip.Addr{servers[1], servers[0]}}},
		{"both", radius.AccessAccept, func(a *radius.Attributes) { array(servers[1].AsSlice())(a); each(a) }, ggsn.Grant{DNS6: servers}},
		{"half a name server", radius.AccessAccept, array(servers[1].AsSlice(), servers[0].AsSlice()[:8]), ggsn.Grant{}},
		{"one of IPv4", radius.AccessAccept, func(a *radius.Attributes) { a.Octets(radius.DNSServerIPv6Address, []byte{192, 0, 2, 53}) }, ggsn.Grant{}},
		{"an MTU", radius.AccessAccept, mtu(1300), ggsn.Grant{MTU: 1300}},
		{"one that no link has", radius.AccessAccept, mtu(1 << 31), ggsn.Grant{MTU: 65535}},
		{"how long a session may last", radius.AccessAccept, func(a *radius.Attributes) { a.Integer(radius.SessionTimeout, 3600) }, ggsn.Grant{Terms: ggsn.Terms{SessionLimit: time.Hour}}},
		{"how long without a packet", radius.AccessAccept, func(a *radius.Attributes) { a.Integer(radius.IdleTimeout, 90) }, ggsn.Grant{Terms: ggsn.Terms{IdleLimit: 90 * time.Second}}},
		{"a time that is none", radius.AccessAccept, func(a *radius.Attributes) { a.Octets(radius.SessionTimeout, []byte{1, 2}) }, ggsn.Grant{}},
		{"an address", radius.AccessAccept, ofHost(radius.FramedIPAddress, "10.45.7.7"), ggsn.Grant{Address4: netip.MustParseAddr("10.45.7.7")}},
		{"an address of IPv6 in its place", radius.AccessAccept, ofHost(radius.FramedIPAddress, "2001:db8::7"), ggsn.Grant{}},
		{"an interface identifier", radius.AccessAccept, func(a *radius.Attributes) { a.Octets(radius.FramedInterfaceID, []byte{1, 2, 3, 4, 5, 6, 7, 8}) }, ggsn.Grant{InterfaceID: 0x0102030405060708}},
		{"a shorter one", radius.AccessAccept, func(a *radius.Attributes) { a.Octets(radius.FramedInterfaceID, []byte{1, 2, 3, 4, 5, 6, 7}) }, ggsn.Grant{}},
		{"classes, one of them empty", radius.AccessAccept, func(a *radius.Attributes) {
			for _, class := range []string{"gold", "", "silver"} {
				a.Octets(radius.Class, []byte(class))
			}
		}, ggsn.Grant{Class: [][]byte{[]byte("gold"), []byte("silver")}}},
		{"a refusal", radius.AccessReject, interim(61), ggsn.Grant{Verdict: ggsn.Refused}},
		{"a challenge", radius.AccessChallenge, interim(61), ggsn.Grant{Verdict: ggsn.Challenged}},
		{"silence", 0, interim(61), ggsn.Grant{Verdict: ggsn.Unknown}},
	} {
		var said radius.Attributes
		one.add(&said)
		if got := grantOf(&radius.Answer{Code: one.code, Attributes: said}); !reflect.DeepEqual(got, one.want) {
			t.Errorf("%s: %+v, want %+v", one.what, got, one.want)
		}
	}
}

// TestRADIUSKeys has what the keys of RADIUS say in the engine and the client.
func TestRADIUSKeys(t *testing.T) {
	configtest.InEffect(t, "ggsn", "radius_timeout", "radius_tries", "radius_dead_time", "max_authorizing")
	configtest.InEffect(t, "ggsn", "radius", "mnc_digits", "plmn")
	configtest.InEffect(t, "ggsn.radius", "address", "port", "secret_file", "signed")
	configtest.InEffect(t, "ggsn.apn", "authenticate", "radius_user", "radius_fallback")
	secret := filepath.Join(t.TempDir(), "secret")
	writePrivate(t, secret, "xyzzy5461\n")
	cfg := written(t, fmt.Sprintf("mnc_digits = 3\nplmn = \"240007\"\nradius_timeout = \"3s\"\nradius_tries = 4\nradius_dead_time = \"5s\"\nmax_authorizing = 6\n[[ggsn.radius]]\naddress = \"192.0.2.10\"\nport = 1645\nsigned = false\nsecret_file = %q\n", secret),
		"authenticate = \"radius\"\nradius_user = \"imsi\"\nradius_fallback = \"local\"")
	s, err := cfg.radiusSettings(Authentication)
	if err != nil || s.Timeout != 3*time.Second || s.Tries != 4 || s.DeadTime != 5*time.Second || len(s.Servers) != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	if one := s.Servers[0]; one.Address != netip.MustParseAddrPort("192.0.2.10:1645") || string(one.Secret) != "xyzzy5461" || !one.AnySigned {
		t.Errorf("%+v", one)
	}
	e, err := engineSettings(&cfg, nil, nil, 0)
	if err != nil || e.Limits.Waiting != 6 || !e.APNs[0].Authorize || !e.APNs[0].Fallback {
		t.Errorf("%+v, %v", e.APNs, err)
	}
	imsi, _ := gtp.ParseIMSI("240010000000003")
	r := &radius.Request{}
	identify(r, &ggsn.Ask{ContextInfo: ggsn.ContextInfo{IMSI: imsi, Account: &ggsn.Account{Origin: ggsn.Origin{User: []byte("nemo")}}}, Credentials: ggsn.Credentials{Password: []byte("arctangent")}}, cfg.APNs[0].RADIUSUser)
	a := &asker{mnc: cfg.MNCDigits, network: cfg.PLMN}
	a.terminal(&r.Attributes, &ggsn.ContextInfo{IMSI: imsi, Account: new(ggsn.Account)})
	if operator, _ := r.Attributes.Find3GPP(gppIMSIOperator); string(operator) != "240010" {
		t.Errorf("the operator is %s", operator)
	}
	if own, _ := r.Attributes.Find3GPP(gppGGSNNetwork); string(own) != "240007" {
		t.Errorf("the node's own network is %s", own)
	}
	if user, _ := r.Attributes.Find(radius.UserName); string(user) != "240010000000003" || string(r.Password) != "240010000000003" {
		t.Errorf("by IMSI: %s, %s", user, r.Password)
	}
}
