// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsnrole

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/gprs/sgsn"
	"github.com/isthmus-net/isthmus/internal/config/configtest"
	"github.com/isthmus-net/isthmus/internal/packet"
)

const (
	alice = "240010000000001"
	bob   = "240010000000002"
)

// wish is an order for a terminal in the namespace.
func (w *world) wish(imsi, tun string) Attached {
	return Attached{Terminal: Terminal{GGSN: theirs.String(), APN: "internet", Type: "v4", IMSI: imsi, GTP: 1, NSAPI: 5, Netns: w.path(), TUN: tun}}
}

// must fails with the error of an order.
func must[T any](t *testing.T) func(done T, err error) T {
	return func(done T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
}

// TestOrders has one SGSN attach several terminals, move, change and detach them.
func TestOrders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, w.settings(t, ""))
	done := must[Done](t)
	if d := done(w.sgsn.attachOrder(w.wish(alice, "ue0"))); d.Event != "attached" || d.Context.IPv4 != ue4 {
		t.Errorf("%+v", d)
	}
	done(w.sgsn.attachOrder(w.wish(bob, "ue1")))
	if _, err := w.sgsn.attachOrder(w.wish(bob, "ue2")); err == nil || w.links(t)["ue2"] != nil {
		t.Errorf("a second context of one NSAPI: %v", err)
	}
	// A second context of a terminal is on the same device.
	second := w.wish(alice, "ue0")
	second.NSAPI, second.Type = 6, "v6"
	done(w.sgsn.attachOrder(second))
	if l := w.links(t); len(l) != 3 {
		t.Errorf("devices %v", l)
	}
	w.echoes(t, ue4, site4, 100)
	w.echoes(t, netip.MustParseAddr("2001:db8:6:3:200::3"), site6, 100)

	who := Which{IMSI: alice, NSAPI: 5}
	done(w.sgsn.updateOrder(Changed{Which: who, Quality: Quality{Class: "streaming", Up: 128, Down: 16000}}))
	update := w.last(t, gtp.TypeUpdateRequest).message.(*gtp.UpdateRequest)
	if p := update.QoS.Value.Profile(); p.Class != gtp.ClassStreaming || p.MaxUp != 128 || p.MaxDown != 16000 {
		t.Errorf("asked for %+v", p)
	}
	done(w.sgsn.updateOrder(Changed{Which: who, Quality: Quality{Class: "interactive", Priority: 2, Up: 128, Down: 128}}))
	update = w.last(t, gtp.TypeUpdateRequest).message.(*gtp.UpdateRequest)
	if p := update.QoS.Value.Profile(); p.Class != gtp.ClassInteractive || p.HandlingPriority != 2 {
		t.Errorf("asked for %+v", p)
	}
	if d := done(w.sgsn.moveOrder(MovedTo{Which: who, To: ours2.String()})); d.Event != "moved" || d.Context.SGSN != ours2 {
		t.Errorf("%+v", d)
	}
	w.echoes(t, ue4, site4, 100)
	if from := w.last(t, gtp.TypeGPDU).from.Addr(); from != ours2 {
		t.Errorf("packets come from %s", from)
	}
	if d := done(w.sgsn.moveOrder(MovedTo{Which: who, GTP: "0"})); d.Event != "moved" || d.Context.GTP != 0 || d.Context.SGSN != ours2 {
		t.Errorf("%+v", d)
	}
	w.echoes(t, ue4, site4, 100)
	if h := w.last(t, gtp.TypeGPDU).header; h.Version != gtp.V0 {
		t.Errorf("packets go by version %d", h.Version)
	}
	if d := done(w.sgsn.moveOrder(MovedTo{Which: who, GTP: "1", To: ours.String()})); d.Event != "moved" || d.Context.GTP != 1 || d.Context.SGSN != ours {
		t.Errorf("%+v", d)
	}
	w.echoes(t, ue4, site4, 100)
	for _, nowhere := range []MovedTo{{Which: who}, {Which: who, To: ours.String(), GGSN: other.String()}, {Which: who, GTP: "0", GGSN: other.String()}} {
		if _, err := w.sgsn.moveOrder(nowhere); err == nil || !strings.Contains(err.Error(), "--to") {
			t.Errorf("%+v: %v", nowhere, err)
		}
	}
	newGGSN(t, w.core, other)
	if d := done(w.sgsn.moveOrder(MovedTo{Which: who, GGSN: other.String()})); d.Event != "attached" || d.Context.GGSN != other {
		t.Errorf("%+v", d)
	}
	w.echoes(t, ue4, site4, 100)
	if _, err := w.sgsn.moveOrder(MovedTo{Which: who, To: theirs.String()}); err == nil || !strings.Contains(err.Error(), ours.String()) {
		t.Errorf("moved to an address that is not ours: %v", err)
	}
	done(w.sgsn.detachOrder(Detached{Which: Which{IMSI: bob, NSAPI: 5}}))
	if l := w.links(t); l["ue1"] != nil || l["ue0"] == nil {
		t.Errorf("devices %v", l)
	}
	if c, _ := w.sgsn.list(struct{}{}); len(c.Contexts) != 2 {
		t.Errorf("%+v", c)
	}
	if err := w.stop(); err != nil || len(w.links(t)) != 1 {
		t.Errorf("%v; devices %v", err, w.links(t))
	}
}

// last is the last message of a type.
func (w *world) last(t *testing.T, kind gtp.MessageType) heard {
	t.Helper()
	all := w.ggsn.all()
	for _, h := range slices.Backward(all) {
		if h.header.Type == kind {
			return h
		}
	}
	t.Fatalf("the GGSN heard no %s", kind)
	return heard{}
}

// TestMisbehaveOrder has the GGSN see what was ordered.
func TestMisbehaveOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, w.settings(t, ue(1, "v4")))
	before := w.ggsn.count(gtp.TypeGPDU)
	which := Which{IMSI: "240010123456789", NSAPI: 5}
	must[Misdone](t)(w.sgsn.misbehaveOrder(Misbehaved{What: sgsn.MisdeedStrayUser, Which: which, Times: 5}))
	for end := time.Now().Add(patience); w.ggsn.count(gtp.TypeGPDU) < before+5; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the GGSN did not hear them")
		}
	}
	if _, err := w.sgsn.misbehaveOrder(Misbehaved{What: "sulk", Which: which, Times: 1}); err == nil {
		t.Error("an unknown misdeed was done")
	}
}

// TestLoadOrder creates and deletes contexts.
func TestLoadOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, w.settings(t, "max_contexts = 200"))
	if _, err := w.sgsn.loaded(struct{}{}); err == nil {
		t.Error("there was a load before the first")
	}
	if _, err := w.sgsn.loadOrder(Loaded{GGSN: "2001:db8::1", APN: "internet", Type: "v4", IMSI: alice, GTP: 1, Contexts: 200, Window: 20}); err == nil || !strings.Contains(err.Error(), "different families") {
		t.Errorf("a load that reaches no GGSN: %v", err)
	}
	if _, err := w.sgsn.loaded(struct{}{}); err == nil {
		t.Error("it goes on")
	}
	must[Started](t)(w.sgsn.loadOrder(Loaded{GGSN: theirs.String(), APN: "internet", Type: "v4", IMSI: alice, GTP: 1, Contexts: 200, Window: 20}))
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		l := must[Load](t)(w.sgsn.loaded(struct{}{}))
		if !l.Going {
			if r := l.Report; r.Creates.Answered != 200 || r.Why != "" || r.Deletes.Answered != 200 || r.Creates.P99 < r.Creates.P50 || r.Creates.PerSecond == 0 {
				t.Errorf("%+v", r)
			}
			return
		}
		if time.Now().After(end) {
			t.Fatal("the load has no end")
		}
	}
}

// TestKeys sees in requests, and on the host, what keys do.
func TestKeys(t *testing.T) {
	configtest.InEffect(t, "sgsn", "name", "local", "restart_counter", "n3_requests", "max_contexts", "sequence_numbers", "route_metric",
		"imsi", "ggsn", "apn", "type", "gtp", "msisdn", "nsapi", "pcscf", "user", "password", "auth", "netns", "tun")
	t.Parallel()
	w := newWorld(t)
	s := w.settings(t, ue(1, "v4v6")+`
name = "north"
restart_counter = "77"
n3_requests = 2
t3_response = "100ms"
max_contexts = 1
sequence_numbers = true
route_metric = 555
msisdn = "46701"
nsapi = 7
pcscf = true
user = "mig"
password = "hemmelig"
auth = "chap"
tun = "radio"
`)
	w.start(t, s)
	w.echoes(t, ue4, site4, 100)
	m := w.last(t, gtp.TypeCreateRequest).message.(*gtp.CreateRequest)
	if m.Recovery != gtp.Some(uint8(77)) || m.NSAPI != 7 || m.MSISDN.Value.String() != "46701" || m.IMSI.Value.String() != "240010123456789" ||
		m.AddressUser != ours || m.EndUserAddress.Value.Type != gtp.PDPTypeIPv4v6 {
		t.Errorf("%+v", m)
	}
	asked := map[gtp.Container]bool{}
	for c := range m.PCO.Value.All() {
		asked[c] = true
	}
	if !asked[gtp.ContainerPCSCF4] || !asked[gtp.ContainerCHAP] || w.sgsn.Name() != "north" {
		t.Errorf("asked for %v by %s", asked, w.sgsn.Name())
	}
	if !w.last(t, gtp.TypeGPDU).header.HasSequence {
		t.Error("packets have no numbers")
	}
	if w.links(t)["radio"] == nil || !slices.Contains(w.metrics(t, "radio"), 555) {
		t.Errorf("devices %v", w.links(t))
	}
	if _, err := w.sgsn.attachOrder(w.wish(alice, "ue1")); err == nil {
		t.Error("a second context was opened")
	}
	before := w.ggsn.count(gtp.TypeUpdateRequest)
	w.ggsn.set(func() { w.ggsn.silent = true })
	if _, err := w.sgsn.updateOrder(Changed{Which: Which{IMSI: "240010123456789", NSAPI: 7}, Quality: Quality{Class: "background"}}); err == nil || w.ggsn.count(gtp.TypeUpdateRequest) != before+2 {
		t.Errorf("%v after %d requests", err, w.ggsn.count(gtp.TypeUpdateRequest)-before)
	}
	w.ggsn.set(func() { w.ggsn.silent = false })
}

// TestDelegate has the terminal of the start ask for a prefix, as it does with the flag alone; nothing is given back
// that there is not.
func TestDelegate(t *testing.T) {
	configtest.InEffect(t, "sgsn", "delegate")
	t.Parallel()
	w := newWorld(t)
	w.start(t, w.settings(t, ue(1, "v6")+"delegate = true\n"))
	solicits := func(h heard) bool {
		p, _, ok := packet.ParseIPv6(h.header.Payload)
		return h.header.Type == gtp.TypeGPDU && ok && p.NextHeader() == packet.ProtoUDP && p.Dst() == netip.MustParseAddr("ff02::1:2") && p.Payload()[packet.UDPHeaderLen] == 1
	}
	for end := time.Now().Add(patience); !slices.ContainsFunc(w.ggsn.all(), solicits); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the GGSN hears no Solicit")
		}
	}
	if _, err := w.sgsn.undelegateOrder(Undelegated{Which{IMSI: "240010123456789", NSAPI: 5}}); !errors.Is(err, sgsn.ErrNoPrefix) {
		t.Errorf("given back what is not there: %v", err)
	}
	if _, err := (Terminal{GGSN: "192.0.2.1", APN: "a", Type: "v4", IMSI: "1", NSAPI: 5, TUN: "none", Delegate: true}).want(); err == nil || !strings.Contains(err.Error(), "--type v6") {
		t.Errorf("a prefix for IPv4: %v", err)
	}
}

// TestFallback opens the context of the start by GTPv0 at a GGSN without GTPv1.
func TestFallback(t *testing.T) {
	configtest.InEffect(t, "sgsn", "gtp_fallback")
	t.Parallel()
	w := newWorld(t)
	w.ggsn.set(func() { w.ggsn.old = true })
	w.start(t, w.settings(t, ue(1, "v4")+"gtp_fallback = true\nt3_response = \"100ms\"\nn3_requests = 2\n"))
	w.echoes(t, ue4, site4, 100)
	if c, _ := w.sgsn.list(struct{}{}); len(c.Contexts) != 1 || c.Contexts[0].GTP != 0 {
		t.Errorf("%+v", c)
	}
}

// TestTimes are keys of times, and of a file.
func TestTimes(t *testing.T) {
	configtest.InEffect(t, "sgsn", "t3_response", "echo_interval", "resolv_conf")
	s := *configtest.One(t, Role.Section, "[[sgsn]]\nlocal = \"192.0.2.1\"\nt3_response = \"1s\"\necho_interval = \"70s\"\n"+
		"imsi = \"1\"\napn = \"a\"\nggsn = \"192.0.2.9\"\nnetns = \"ue\"\nresolv_conf = true\n").(*Settings)
	e := s.engine(time.Unix(300, 0))
	first, _, _ := s.first()
	if e.T3Response != time.Second || e.EchoInterval != 70*time.Second || e.Recovery != 44 || !first.resolvConf {
		t.Errorf("%+v, %+v", e, first)
	}
}

// TestSecondaryOrder opens a secondary context, by which the packets go that its filters name;
// the terminal's address stays until the last context of it is closed.
func TestSecondaryOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start(t, w.settings(t, ""))
	done := must[Done](t)
	first := done(w.sgsn.attachOrder(w.wish(alice, "ue0"))).Context
	ask := Linked{Which: Which{IMSI: alice, NSAPI: 5}, Filters: []string{"protocol=udp,remote-port=7"}, Quality: Quality{Class: "streaming", Up: 64, Down: 128}}
	second := done(w.sgsn.secondaryOrder(ask)).Context
	m := w.last(t, gtp.TypeCreateRequest).message.(*gtp.CreateRequest)
	if p := m.QoS.Profile(); second.NSAPI != 6 || second.Linked != 5 || second.IPv4 != ue4 || p.Class != gtp.ClassStreaming || p.MaxDown != 128 {
		t.Errorf("%+v, asked for %+v", second, p)
	}
	if len(second.Filters) != 1 || second.Filters[0] != "precedence=96,direction=both,protocol=17,remote-port=7" {
		t.Errorf("filters %q", second.Filters)
	}
	w.echoes(t, ue4, site4, 100)
	if by := w.last(t, gtp.TypeGPDU).header.TEID; by != second.TEIDs[3] {
		t.Errorf("packets go by %#x, not %#x", by, second.TEIDs[3])
	}
	var table strings.Builder
	must[Contexts](t)(w.sgsn.list(struct{}{})).Write(&table)
	if !strings.Contains(table.String(), alice+"\t6\t5\topen") {
		t.Error(table.String())
	}
	for what, ask := range map[string]Linked{
		"of none":                  {Which: Which{IMSI: bob, NSAPI: 5}, Filters: ask.Filters},
		"of a secondary one":       {Which: Which{IMSI: alice, NSAPI: 6}, Filters: ask.Filters},
		"in the place of another":  {Which: Which{IMSI: alice, NSAPI: 5}, As: 6, Filters: ask.Filters},
		"of an NSAPI that is none": {Which: Which{IMSI: alice, NSAPI: 5}, As: 16, Filters: ask.Filters},
		"without a filter":         {Which: Which{IMSI: alice, NSAPI: 5}},
	} {
		if _, err := w.sgsn.secondaryOrder(ask); err == nil {
			t.Errorf("one %s was opened", what)
		}
	}
	done(w.sgsn.detachOrder(Detached{Which: Which{IMSI: alice, NSAPI: 5}, Alone: true}))
	if w.last(t, gtp.TypeDeleteRequest).message.(*gtp.DeleteRequest).Teardown.Value {
		t.Error("alone is with a teardown")
	}
	w.echoes(t, ue4, site4, 100)
	done(w.sgsn.detachOrder(Detached{Which: Which{IMSI: alice, NSAPI: 6}, Teardown: true}))
	if d := w.last(t, gtp.TypeDeleteRequest).message.(*gtp.DeleteRequest); !d.Teardown.Value || d.NSAPI != 6 || len(w.links(t)) != 1 {
		t.Errorf("%+v; devices %v", d, w.links(t))
	}
	if first.TEIDs[3] == second.TEIDs[3] {
		t.Error("both have one tunnel")
	}
}
