// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package sgsn

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/gtp"
)

// TestCreate opens and closes contexts of each type and version.
func TestCreate(t *testing.T) {
	for _, v := range []gtp.Version{gtp.V0, gtp.V1} {
		for _, kind := range []gtp.PDPType{gtp.PDPTypeIPv4, gtp.PDPTypeIPv6, gtp.PDPTypeIPv4v6} {
			t.Run(fmt.Sprintf("GTPv%d %s", v, kind), func(t *testing.T) {
				w := newWorld(t, Settings{Recovery: 3})
				a := attachment(v, kind)
				key, err := w.e.Attach(a, w.now, &w.out)
				w.order(err)
				w.now = w.now.Add(20 * time.Millisecond)
				h, m := w.accept(nil)
				if h.TEID != 0 || h.FlowLabel != 0 || m.EndUserAddress.Value.IPv4.IsValid() || m.Recovery != gtp.Some(uint8(3)) {
					t.Errorf("header %+v, request %+v", h, m)
				}
				if about := w.event(Attached); about.Took != 20*time.Millisecond || about.Link != 1 || about.Peer != theirs {
					t.Errorf("%+v", about)
				}
				i := w.info(key)
				if i.State != Open || i.Type != kind || i.IPv4.IsValid() != (kind != gtp.PDPTypeIPv6) || i.LinkLocal.IsValid() != (kind != gtp.PDPTypeIPv4) {
					t.Errorf("%+v", i)
				}
				w.clear()
				w.order(w.e.Detach(key, true, w.now, &w.out))
				d, h := w.next()
				if v == gtp.V1 && h.TEID != i.RemoteControl || v == gtp.V0 && (uint32(h.FlowLabel) != i.RemoteControl || h.TID != key) {
					t.Errorf("header %+v", h)
				}
				w.say(d.Socket, reply(h, i.TEIDControl), &gtp.DeleteResponse{Cause: gtp.CauseAccepted})
				if about := w.event(Ended); about.Reason != ReasonDetached || about.Cause != gtp.CauseAccepted || !about.Closing {
					t.Errorf("%+v", about)
				}
				w.empty()
			})
		}
	}
}

// empty fails if the engine remembers anything of what has ended.
func (w *world) empty() {
	w.t.Helper()
	e := w.e
	if n := len(e.contexts) + len(e.data) + len(e.control) + len(e.sources) + len(e.paths) + len(e.requests) + e.timers.Len(); n > 0 {
		w.t.Errorf("%d contexts, %d and %d tunnels, %d sources, %d paths, %d requests, %d timers are left",
			len(e.contexts), len(e.data), len(e.control), len(e.sources), len(e.paths), len(e.requests), e.timers.Len())
	}
}

// TestCreateAnswers are answers that a GGSN may give.
func TestCreateAnswers(t *testing.T) {
	eua := func(kind gtp.PDPType, four, six netip.Addr) func(*gtp.CreateResponse) {
		return func(m *gtp.CreateResponse) {
			m.EndUserAddress = gtp.Some(gtp.EndUserAddress{Type: kind, IPv4: four, IPv6: six})
		}
	}
	refuse := func(c gtp.Cause) func(*gtp.CreateResponse) {
		return func(m *gtp.CreateResponse) { *m = gtp.CreateResponse{Cause: c} }
	}
	with := func(c gtp.Cause, f func(*gtp.CreateResponse)) func(*gtp.CreateResponse) {
		return func(m *gtp.CreateResponse) { m.Cause = c; f(m) }
	}
	for _, row := range []struct {
		name   string
		asked  gtp.PDPType
		answer func(*gtp.CreateResponse)
		kind   EventKind
		cause  gtp.Cause
		reason Reason
		given  gtp.PDPType
	}{
		{"both addresses", gtp.PDPTypeIPv4v6, eua(gtp.PDPTypeIPv4v6, four, six), Attached, gtp.CauseAccepted, 0, gtp.PDPTypeIPv4v6},
		{"the network prefers IPv6", gtp.PDPTypeIPv4v6, with(gtp.CauseNewPDPTypeNetwork, eua(gtp.PDPTypeIPv6, netip.Addr{}, six)), Attached, gtp.CauseNewPDPTypeNetwork, 0, gtp.PDPTypeIPv6},
		{"one address of two", gtp.PDPTypeIPv4v6, with(gtp.CauseNewPDPTypeSingle, eua(gtp.PDPTypeIPv4, four, netip.Addr{})), Attached, gtp.CauseNewPDPTypeSingle, 0, gtp.PDPTypeIPv4},
		{"another family than asked for", gtp.PDPTypeIPv4, eua(gtp.PDPTypeIPv6, netip.Addr{}, six), Refused, gtp.CauseAccepted, ReasonBadAnswer, 0},
		{"no address", gtp.PDPTypeIPv4, eua(gtp.PDPTypeIPv4, netip.IPv4Unspecified(), netip.Addr{}), Refused, gtp.CauseAccepted, ReasonBadAnswer, 0},
		{"no tunnel of signalling", gtp.PDPTypeIPv4, func(m *gtp.CreateResponse) { m.TEIDControl.Present = false }, Refused, gtp.CauseAccepted, ReasonBadAnswer, 0},
		{"user plane of another family", gtp.PDPTypeIPv4, func(m *gtp.CreateResponse) { m.AddressUser = gtp.Some(netip.MustParseAddr("2001:db8::9")) }, Refused, gtp.CauseAccepted, ReasonBadAnswer, 0},
		{"unknown APN", gtp.PDPTypeIPv4, refuse(gtp.CauseUnknownAPN), Refused, gtp.CauseUnknownAPN, ReasonRefused, 0},
		{"no address left", gtp.PDPTypeIPv6, refuse(gtp.CauseAddressesOccupied), Refused, gtp.CauseAddressesOccupied, ReasonRefused, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{})
			key, err := w.e.Attach(attachment(gtp.V1, row.asked), w.now, &w.out)
			w.order(err)
			w.accept(row.answer)
			if about := w.event(row.kind); about.Cause != row.cause || about.Reason != row.reason {
				t.Errorf("%+v", about)
			}
			if row.kind == Refused {
				w.empty()
			} else if got := w.info(key).Type; got != row.given {
				t.Errorf("type %s, want %s", got, row.given)
			}
		})
	}
}

// TestT3Response repeats the same octets each T3-RESPONSE, N3-REQUESTS times in all.
func TestT3Response(t *testing.T) {
	w := newWorld(t, Settings{T3Response: 2 * time.Second, N3Requests: 4})
	if _, err := w.e.Attach(attachment(gtp.V1, gtp.PDPTypeIPv4), w.now, &w.out); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 4; n++ {
		if len(w.out.UDP) != n || !bytes.Equal(w.out.UDP[0].Payload, w.out.UDP[n-1].Payload) {
			t.Fatalf("after %d waits: %x", n-1, w.out.UDP)
		}
		w.wait(2*time.Second - 1)
		if len(w.out.UDP) != n {
			t.Fatal("repeated too soon")
		}
		w.wait(1)
	}
	if about := w.event(Refused); about.Reason != ReasonNoAnswer || about.Took != 8*time.Second {
		t.Errorf("%+v", about)
	}
	w.empty()
}

// TestLateAnswer is an answer to a request that was given up.
func TestLateAnswer(t *testing.T) {
	w := newWorld(t, Settings{})
	_, err := w.e.Attach(attachment(gtp.V1, gtp.PDPTypeIPv4), w.now, &w.out)
	w.order(err)
	w.wait(time.Minute)
	w.accept(nil)
	if got := w.drops("response_without_request"); got != 1 || w.e.Contexts() != 0 {
		t.Errorf("%d drops, %d contexts", got, w.e.Contexts())
	}
}

// TestAttachRefusals are orders that cannot be followed.
func TestAttachRefusals(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*Attachment)
		want   error
	}{
		{"no such address", func(a *Attachment) { a.Local = 2 }, ErrLocal},
		{"the same context", func(a *Attachment) {}, ErrKnown},
		{"too many", func(a *Attachment) { a.NSAPI = 7 }, ErrFull},
		{"an NSAPI for signalling", func(a *Attachment) { a.NSAPI = 4 }, nil},
		{"a GGSN of another family", func(a *Attachment) { a.NSAPI, a.GGSN = 6, router }, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t, Settings{MaxContexts: 2})
			w.attach(gtp.V1, gtp.PDPTypeIPv4)
			if row.want == ErrFull {
				a := attachment(gtp.V1, gtp.PDPTypeIPv4)
				a.NSAPI = 6
				_, err := w.e.Attach(a, w.now, &w.out)
				w.order(err)
			}
			a := attachment(gtp.V1, gtp.PDPTypeIPv4)
			row.change(a)
			before := w.e.Contexts()
			if _, err := w.e.Attach(a, w.now, &w.out); err == nil || row.want != nil && !errors.Is(err, row.want) {
				t.Errorf("%v, want %v", err, row.want)
			}
			if w.e.Contexts() != before {
				t.Error("a context was made all the same")
			}
		})
	}
}

// TestPCO asks for what a terminal needs, and takes what it is told.
func TestPCO(t *testing.T) {
	w := newWorld(t, Settings{})
	a := attachment(gtp.V1, gtp.PDPTypeIPv4v6)
	a.PCSCF, a.User, a.Password = true, "mig", "hemmelig"
	key, err := w.e.Attach(a, w.now, &w.out)
	w.order(err)
	addrs := func(list ...string) (a []netip.Addr) {
		for _, s := range list {
			a = append(a, netip.MustParseAddr(s))
		}
		return a
	}
	dns := addrs("192.0.2.53", "192.0.2.54", "2001:db8::53")
	_, m := w.accept(func(m *gtp.CreateResponse) {
		p := gtp.NewPCO(nil)
		p, _ = p.Add(gtp.ContainerPAP, gtp.PPP{Code: gtp.PAPAck, Identifier: w.e.contexts[key].session.given.proof.identifier, Data: []byte("\x07Welcome")}.Append(nil))
		nak := gtp.AppendIPCPOption(nil, gtp.IPCPPrimaryDNS, dns[0])
		nak = gtp.AppendIPCPOption(nak, gtp.IPCPSecondaryDNS, dns[1])
		p, _ = p.Add(gtp.ContainerIPCP, gtp.PPP{Code: gtp.ConfigureNak, Identifier: 1, Data: nak}.Append(nil))
		p, _ = p.Add(gtp.ContainerDNS4, dns[0].AsSlice())
		p, _ = p.Add(gtp.ContainerDNS6, dns[2].AsSlice())
		p, _ = p.Add(gtp.ContainerPCSCF4, []byte{192, 0, 2, 60})
		p, _ = p.Add(gtp.ContainerMTU4, []byte{0x05, 0x78})
		m.PCO = gtp.Some(p)
	})
	var asked []gtp.Container
	for c, v := range m.PCO.Value.All() {
		asked = append(asked, c)
		if c == gtp.ContainerPAP {
			p, _ := gtp.ParsePPP(v)
			if user, password, ok := p.PAPCredentials(); !ok || string(user) != "mig" || string(password) != "hemmelig" {
				t.Errorf("%q, %q", user, password)
			}
		}
	}
	want := []gtp.Container{gtp.ContainerPAP, gtp.ContainerIPCP, gtp.ContainerDNS4, gtp.ContainerMTU4, gtp.ContainerDNS6, gtp.ContainerPCSCF6, gtp.ContainerPCSCF4}
	if !slices.Equal(asked, want) {
		t.Errorf("asked for %x, want %x", asked, want)
	}
	i := w.info(key)
	if !slices.Equal(i.DNS, dns) || !slices.Equal(i.PCSCF, addrs("192.0.2.60")) || i.MTU4 != 1400 || i.AuthMessage != "Welcome" || i.Auth != AuthAccepted {
		t.Errorf("%+v", i)
	}
}
