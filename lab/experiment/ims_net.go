// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/sip/aka"
	"github.com/isthmus-net/isthmus/sip/message"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// imsDomain is the home network's, imsAPN its access point.
const (
	imsDomain = "ims.example.net"
	imsAPN    = "ims"
)

// imsGuide takes the tour. Nothing in it has IPv4, and GTP goes over IPv6, too.
//
//	ue1 ~+                                  +-- pcscf  2001:db8:1::2
//	     +~ sgsn -- gn -- ggsn ~~~ router --+-- icscf  2001:db8:2::2
//	ue2 ~+                     gi           +-- scscf1 2001:db8:3::2
//	                                        +-- scscf2 2001:db8:4::2
//
// The radio is a wire in the mind: the emulator of the SGSN gives the nodes of UEs their devices. One file
// of subscribers stands for the home subscriber server.
type imsGuide struct {
	*walk
	sgsn, ggsn, router *lab.Node
	p, i, s1, s2       *cscf
	ue1, ue2           *imsUE

	registrations []imsRegistration
	calls         []*imsCall
}

// cscf is a server of the IMS.
type cscf struct {
	title string
	node  *lab.Node
	at    netip.Addr
}

func (s *cscf) uri() string { return fmt.Sprintf("sip:[%s]:%d", s.at, sipPort) }

// servers are all, in the order of the figure.
func (g *imsGuide) servers() []*cscf { return []*cscf{g.p, g.i, g.s1, g.s2} }

// imsUE is a UE with its subscription.
type imsUE struct {
	title, user, imsi string
	k, opc            string
	home              *cscf // that serves it
	node              *lab.Node
	card              *ua.SIM
	context           imsContext
	phone             *sipPhone
}

// aor is its public identity, and privateID the name by which it proves that.
func (u *imsUE) aor() string       { return "sip:" + u.privateID() }
func (u *imsUE) privateID() string { return u.user + "@" + imsDomain }

// address is the one that it has.
func (u *imsUE) address() netip.Addr { return u.context.IPv6[0] }

// newIMS draws the topology.
func newIMS(ctx context.Context, e *lab.Env) (_ *imsGuide, err error) {
	w, err := newWalk(ctx, e, imsName)
	if err != nil {
		return nil, err
	}
	l := w.lab
	g := &imsGuide{walk: w, sgsn: l.Node("sgsn"), ggsn: l.Node("ggsn"), router: l.Node("router")}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	g.subscribe()
	l.Link(g.sgsn, "gn", g.ggsn, "gn")
	g.sgsn.Addr("gn", core6.sgsn.String()+"/64")
	way := lab.LaneConfig{Delay: imsTrip / 2}
	_, _ = l.Wire(g.ggsn, "gi", g.router, "gi", lab.WireConfig{AtoB: way, BtoA: way}) // the lab keeps the error
	g.ggsn.Forward(false, true).Addr("gn", core6.ggsn.String()+"/64").Addr("gi", coreGi6.String()+"/64").Route("default6", coreSrv6.String())
	g.router.Forward(false, true).Addr("gi", coreSrv6.String()+"/64").Route(corePool6.String(), coreGi6.String())
	for n, s := range g.servers() {
		name, net := s.node.Name(), lan{n + 1, true}
		l.Link(s.node, "eth0", g.router, name)
		g.router.Addr(name, net.with(1))
		s.node.Addr("eth0", net.with(2)).Route("default6", net.at(1).String())
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	// Captures are to have each packet by itself.
	return g, errors.Join(g.sgsn.DisableOffloads("gn"), g.ggsn.DisableOffloads("gn"), e.Capture(g.ggsn, "gn"), e.Capture(g.ggsn, "gi"))
}

// subscribe makes servers and UEs, of which each has an S-CSCF of its own.
func (g *imsGuide) subscribe() {
	server := func(number int, title, name string) *cscf {
		return &cscf{title: title, node: g.lab.Node(name), at: lan{number, true}.at(2)}
	}
	g.p, g.i = server(1, "P-CSCF", "pcscf"), server(2, "I-CSCF", "icscf")
	g.s1, g.s2 = server(3, "S-CSCF 1", "scscf1"), server(4, "S-CSCF 2", "scscf2")
	// Keys of test sets 1 and 3 of TS 35.208.
	g.ue1 = &imsUE{
		title: "UE 1", user: "alice", imsi: "240010123456789", home: g.s1, node: g.lab.Node("ue1"),
		k: "465b5ce8b199b49faa5f0a2ee238a6bc", opc: "cd63cb71954a9f4e48a5994e37a02baf",
	}
	g.ue2 = &imsUE{
		title: "UE 2", user: "bob", imsi: "240010123456790", home: g.s2, node: g.lab.Node("ue2"),
		k: "0396eb317b6d1c36f19c1c84cd6ffd16", opc: "53c15671c60a4b731c55b4a441c0bde2",
	}
	for _, u := range []*imsUE{g.ue1, g.ue2} {
		u.card = newCard(u.k, u.opc)
	}
}

// newCard is a subscriber's card, which has seen no challenge.
func newCard(k, opc string) *ua.SIM {
	read := func(text string) aka.Key {
		b, err := hex.DecodeString(text)
		if err != nil {
			panic(err) // a mistake in this program
		}
		return aka.Key(b)
	}
	return &ua.SIM{Milenage: aka.NewMilenage(read(k), read(opc))}
}

// close ends the telephones, and then all else.
func (g *imsGuide) close() error {
	var err error
	for _, u := range []*imsUE{g.ue1, g.ue2} {
		if u != nil {
			err = errors.Join(err, u.phone.close())
		}
	}
	return errors.Join(err, g.walk.close())
}

// serveAll starts what has a configuration, and has the ends of the wire know each other.
func (g *imsGuide) serveAll(ctx context.Context) (string, error) {
	file := filepath.Join(g.dir, "subscribers.toml")
	if err := os.WriteFile(file, []byte(g.subscribers()), 0o600); err != nil {
		return "", err
	}
	for _, one := range []struct {
		node     *lab.Node
		sections string
	}{
		{g.p.node, g.p.section("next_hop = %q\ntrusted = [%q, %q]", g.i.uri(), g.s1.at, g.s2.at)},
		{g.i.node, g.i.section("subscribers_file = %q\ntrusted = [%q, %q]\nrecord_route = false", file, g.s1.at, g.s2.at)},
		{g.s1.node, g.serving(g.s1, file)},
		{g.s2.node, g.serving(g.s2, file)},
		{g.ggsn, fmt.Sprintf(`[[ggsn]]
gsn_address6 = %q
peers = [%q]
state_file = %q
[[ggsn.apn]]
name = %q
pool6 = [%q]
pcscf = [%q]
ue_to_ue = "allow"
`, core6.ggsn, core6.sgsn, filepath.Join(g.dir, "ggsn.state"), imsAPN, corePool6, g.p.at)},
		{g.sgsn, fmt.Sprintf("[[sgsn]]\nlocal = [%q]\nstate_file = %q\n", core6.sgsn, filepath.Join(g.dir, "sgsn.state"))},
	} {
		if err := g.serve(ctx, one.node, one.sections); err != nil {
			return "", err
		}
	}
	return g.ping(ctx, g.ggsn, g.p.at)
}

// section is the configuration of a CSCF, with lines of its own.
func (s *cscf) section(lines string, values ...any) string {
	return fmt.Sprintf("[[registrar]]\ndomains = [%q]\nlisten = [%q]\nkeep_state = false\n", imsDomain, s.at) + fmt.Sprintf(lines, values...) + "\n"
}

// serving is that of an S-CSCF.
func (g *imsGuide) serving(s *cscf, subscribers string) string {
	return s.section("subscribers_file = %q\nservice_route = [%q]\nicscf = %q\ntrusted = [%q]", subscribers, s.uri(), g.i.uri(), g.i.at)
}

// subscribers are the file of the home subscriber server.
func (g *imsGuide) subscribers() string {
	var text strings.Builder
	for _, u := range []*imsUE{g.ue1, g.ue2} {
		fmt.Fprintf(&text, "[[subscriber]]\nimsi = %q\nprivate_id = %q\npublic_ids = [%q]\nk = %q\nopc = %q\nsqn = \"000000000020\"\nscscf = %q\n",
			u.imsi, u.privateID(), u.aor(), u.k, u.opc, u.home.uri())
	}
	return text.String()
}

// imsContext is what a UE has learnt of its PDP context.
type imsContext struct{ IPv6, PCSCF []netip.Addr }

// order gives the SGSN an order about a UE, and takes what its context is then.
func (g *imsGuide) order(ctx context.Context, u *imsUE, argv ...string) error {
	out, err := g.run(ctx, g.sgsn, append(append([]string{g.env.Binary, "sgsn"}, argv...), "--json", "--socket", g.socket("sgsn"))...)
	if err != nil {
		return err
	}
	var done struct{ Context imsContext }
	if err := json.Unmarshal([]byte(out), &done); err != nil {
		return err
	}
	if u.context = done.Context; len(u.context.IPv6) != 1 || len(u.context.PCSCF) != 1 || u.context.PCSCF[0] != g.p.at {
		return fmt.Errorf("the context has %+v, and %v is the P-CSCF", u.context, g.p.at)
	}
	return nil
}

func (g *imsGuide) attach(ctx context.Context, u *imsUE) (string, error) {
	err := g.order(ctx, u, "attach", "--ggsn", core6.ggsn.String(), "--apn", imsAPN, "--type", "v6", "--imsi", u.imsi, "--netns", u.node.Namespace(), "--tun", ueDevice, "--pcscf")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("address %v, P-CSCF %v", u.address(), u.context.PCSCF[0]), nil
}

// telephone starts the UE's user agent with a card. Its first hop is what the SGSN has heard of the GGSN
// (TS 24.229 section 9.2.1).
func (u *imsUE) telephone(ctx context.Context, card *ua.SIM) (*sipPhone, error) {
	proxy := u.context.PCSCF[0]
	set := phoneSettings(u.aor(), proxy, false)
	set.UA.Proxy = message.URI{Scheme: "sip", Host: proxy.String()}
	set.UA.Username, set.UA.SIM, set.UA.Register = u.privateID(), card, time.Hour
	return startPhone(ctx, u.node, set)
}

// bindings are the contacts of a UE at a server.
func (g *imsGuide) bindings(ctx context.Context, u *imsUE, at *cscf) ([]string, error) {
	return instance{at.node, g.env.Binary, g.dir, at.node.Name()}.bindings(ctx, u.aor())
}

// boundAt wants a UE to have so many bindings at its S-CSCF, and none at any other server.
func (g *imsGuide) boundAt(ctx context.Context, u *imsUE, want int) error {
	for _, s := range g.servers() {
		list, err := g.bindings(ctx, u, s)
		if err != nil {
			return err
		}
		wanted := 0
		if s == u.home {
			wanted = want
		}
		if len(list) != wanted {
			return fmt.Errorf("the %s has %d bindings of %s, not %d: %v", s.title, len(list), u.title, wanted, list)
		}
	}
	return nil
}
