// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"context"
	"net/netip"
	"time"

	"github.com/isthmus-net/isthmus/lab"
	"github.com/isthmus-net/isthmus/lab/peers"
	"github.com/isthmus-net/isthmus/sip/registrar/registrarrole"
	"github.com/isthmus-net/isthmus/sip/ua"
)

// handoffSpeech is how long baresip says nothing before it hangs up: longer than any call lasts.
const handoffSpeech = time.Hour

// others are the worlds with a program of others in the place of one of ours, if they are there.
func (w handoffWorld) others(e *lab.Env) (worlds []handoffWorld) {
	if _, missing := peersOf(e).Program("kamailio"); missing == nil {
		theirs := w
		theirs.kamailio = true
		worlds = append(worlds, theirs)
	}
	if _, missing := peersOf(e).Program("baresip"); missing == nil {
		theirs := w
		theirs.baresip = true
		worlds = append(worlds, theirs)
	}
	return worlds
}

// who says whose programs take part.
func (w handoffWorld) who() string {
	switch {
	case w.kamailio:
		return "Kamailio as SIP server"
	case w.baresip:
		return "baresip at the host"
	}
	return "Isthmus"
}

// serveSIP starts the SIP server, and waits until it serves.
func (n *handoffNet) serveSIP(ctx context.Context) error {
	if n.kamailio {
		_, err := n.daemons.keep(n.theirServer().start(ctx))
		return err
	}
	sections, err := sipServer(n.daemons.dir, handoffSIP, registrarrole.Proxy)
	if err != nil {
		return err
	}
	p, err := n.daemons.keep(n.registrar().run(ctx, sections))
	if err != nil {
		return err
	}
	return running(ctx, p)
}

// theirServer is Kamailio in the SIP server's place. As ours does here, it leaves calls to their ends.
func (n *handoffNet) theirServer() kamailioServer {
	c := kamailioAt(handoffSIP)
	c.Direct = true
	return kamailioServer{c, n.daemons.env, n.daemons.dir, n.sip}
}

// bindings are the contacts of the terminal at the SIP server.
func (n *handoffNet) bindings(ctx context.Context) ([]string, error) {
	if n.kamailio {
		return n.theirServer().bindings(ctx)
	}
	return n.registrar().bindings(ctx, sipUE)
}

// startHost starts the host's telephone, which is a stranger to the SIP server.
func (n *handoffNet) startHost(ctx context.Context) (err error) {
	if n.baresip {
		n.theirs, err = startBaresip(ctx, n.daemons, n.host, peers.Baresip{
			Name: "ch", Device: "v6", Listen: netip.AddrPortFrom(hostAddr, sipPort), User: "ch", Domain: "example.org", Password: sipSecret,
			Unregistered: true, Proxy: "sip:" + uriHost(handoffSIP) + ";transport=udp", Answer: true, Silence: handoffSpeech,
		})
		return err
	}
	set := phoneSettings("sip:ch@example.org", handoffSIP, true)
	if n.guide != nil {
		set.Sound = n.guide.heard.sound
	}
	n.ch, err = startPhone(ctx, n.host, set)
	return err
}

// hostCalls has the host call the terminal, by the SIP server.
func (n *handoffNet) hostCalls(ctx context.Context) error {
	if n.theirs != nil {
		return n.theirs.call(sipUE)
	}
	_, err := n.ch.Call(ctx, sipUE)
	return err
}

// hostEnds has the host end the one call, and waits until the terminal knows.
func (n *handoffNet) hostEnds(ctx context.Context) error {
	if n.theirs == nil {
		return n.ch.endCall(ctx, n.ue)
	}
	if err := n.theirs.hangUp(); err != nil {
		return err
	}
	return n.ue.await(ctx, ua.Ended)
}

// phones are those that are ours: theirs does not tell what it hears, which captures at the host do.
func (n *handoffNet) phones() []*sipPhone {
	if n.theirs != nil {
		return []*sipPhone{n.ue}
	}
	return []*sipPhone{n.ue, n.ch}
}

// forget drops the events of both that no one has waited for.
func (n *handoffNet) forget() {
	for _, p := range n.phones() {
		p.forget()
	}
}

// heard waits until both ends have heard each other further.
func (n *handoffNet) heard(ctx context.Context) error {
	return awaitMedia(ctx, n.packets(), n.phones()...)
}
