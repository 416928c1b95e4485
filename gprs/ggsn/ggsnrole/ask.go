// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/role"
)

const (
	// listStep is how many records are looked at between two packets, and maxRows how many
	// rows a part has.
	listStep = 4096
	maxRows  = 5000

	maxNSAPI = 15
)

// walk calls f for the contexts that match, from a record on until it returns false; packets
// pass in between. It returns where to go on, 0 behind the last.
func (g *GGSN) walk(sel ggsn.Selection, from uint32, f func(ggsn.ContextInfo) bool) (next uint32) {
	next, more := from, true
	for more {
		running := g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) {
			next = e.Contexts(sel, next, listStep, func(x ggsn.ContextInfo) bool {
				more = f(x)
				return more
			})
		})
		more = more && running && next != 0
	}
	return next
}

// selection reads arguments.
func (a *contextArguments) selection() (sel ggsn.Selection, err error) {
	if a.IMSI != "" {
		if sel.IMSI, err = gtp.ParseIMSI(a.IMSI); err != nil {
			return sel, err
		}
	}
	if a.NSAPI != nil && *a.NSAPI > maxNSAPI {
		return sel, fmt.Errorf("an NSAPI is a number from 0 to %d", maxNSAPI)
	}
	sel.NSAPI, sel.APN, sel.TEID = a.NSAPI, a.APN, a.TEID
	if sel.Address, err = role.ParsePrefix(a.Address); err != nil {
		return sel, err
	}
	if a.SGSN != "" {
		if sel.Peer, err = netip.ParseAddr(a.SGSN); err != nil {
			return sel, fmt.Errorf("%q is not an address of an SGSN", a.SGSN)
		}
	}
	return sel, nil
}

// selection is that of arguments, with the number of the network that they name.
func (g *GGSN) selection(a *contextArguments) (sel ggsn.Selection, err error) {
	if sel, err = a.selection(); err != nil || a.VRF == "" {
		return sel, err
	}
	at := slices.Index(g.vrfs, a.VRF)
	if at < 0 {
		return sel, fmt.Errorf("no access point is in a VRF %s: isthmus status lists those that there are", a.VRF)
	}
	number := uint8(at)
	sel.VRF = &number
	return sel, nil
}

// contexts lists a part of the contexts.
func (g *GGSN) contexts(a listArguments) (list Contexts, err error) {
	list.Contexts = []Context{}
	sel, err := g.selection(&a.contextArguments)
	if err != nil {
		return list, err
	}
	if a.Limit < 1 || a.Limit > maxRows {
		return list, fmt.Errorf("limit must be a number from 1 to %d", maxRows)
	}
	list.From = g.walk(sel, a.From, func(x ggsn.ContextInfo) bool {
		c := contextOf(&x)
		c.VRF = g.vrfs[x.VRF]
		list.Contexts = append(list.Contexts, c)
		return len(list.Contexts) < a.Limit
	})
	return list, nil
}

// peers lists the nodes at the other end.
func (g *GGSN) peers(struct{}) (list Peers, err error) {
	list.Peers = []Peer{}
	g.do(func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) {
		e.Peers(func(p ggsn.PeerInfo) {
			one := Peer{Address: p.Address, Contexts: p.Contexts, Opened: p.Opened, Down: p.Down, Since: p.Since}
			if p.Known {
				one.Restart = &p.Restart
			}
			list.Peers = append(list.Peers, one)
		})
	})
	return list, nil
}

// chosen are the contexts of an order, which is not for all of them by mistake, nor for those of one network
// that have the addresses of another.
func (g *GGSN) chosen(a *deleteArguments) ([]ggsn.Ref, error) {
	sel, err := g.selection(&a.contextArguments)
	switch {
	case err != nil:
		return nil, err
	case a.none() != a.All:
		return nil, errors.New("say which contexts, by --imsi or another flag, or --all of them")
	case g.engine.Load() == nil:
		return nil, errNotRunning
	}
	refs, networks := g.named(sel, func(*ggsn.ContextInfo) bool { return true }, math.MaxInt)
	if networks > 1 && sel.Address.IsValid() {
		return nil, fmt.Errorf("contexts of %d networks have addresses of %s: say of which one, by --vrf or --apn", networks, a.Address)
	}
	return refs, nil
}

// named returns the contexts that match, of which a second look takes some, as many as there may be at most, and in how
// many networks these are: one address may be in several.
func (g *GGSN) named(sel ggsn.Selection, takes func(*ggsn.ContextInfo) bool, most int) (refs []ggsn.Ref, networks int) {
	in := map[uint8]bool{}
	g.walk(sel, 0, func(x ggsn.ContextInfo) bool {
		if takes(&x) {
			refs = append(refs, ggsn.Ref{Record: x.Record, ChargingID: x.ChargingID})
			in[x.VRF] = true
		}
		return len(refs) < most
	})
	return refs, len(in)
}

// orderStep is how many contexts an order is carried out for between packets.
const orderStep = 256

// each has the engine do something for the contexts of an order, some at a time, and returns for how many it did.
func (g *GGSN) each(a *deleteArguments, do func(*ggsn.Engine, []ggsn.Ref, time.Time, *ggsn.Output) int) (n int, err error) {
	refs, err := g.chosen(a)
	for some := range slices.Chunk(refs, orderStep) {
		if !g.do(func(e *ggsn.Engine, now time.Time, out *ggsn.Output) { n += do(e, some, now, out) }) {
			return n, errNotRunning
		}
	}
	return n, err
}

// remove ends contexts in good order.
func (g *GGSN) remove(a deleteArguments) (Deleted, error) {
	n, err := g.each(&a, (*ggsn.Engine).DeleteNamed)
	return Deleted{n}, err
}

// closeRecords closes charging records.
func (g *GGSN) closeRecords(a deleteArguments) (Closed, error) {
	n, err := g.each(&a, (*ggsn.Engine).CloseRecords)
	return Closed{n}, err
}

// drain takes no more contexts, and ends those that there are.
func (g *GGSN) drain(a drainArguments) (Drained, error) {
	if a.Rate < 0 {
		return Drained{}, fmt.Errorf("a rate of %d is impossible: write 0 or more", a.Rate)
	}
	return Drained{true, a.Rate}, g.setDraining(true, func(e *ggsn.Engine, now time.Time, out *ggsn.Output) { e.Drain(a.Rate, now, out) })
}

// undrain takes contexts again.
func (g *GGSN) undrain(struct{}) (Drained, error) {
	return Drained{}, g.setDraining(false, func(e *ggsn.Engine, _ time.Time, _ *ggsn.Output) { e.Undrain() })
}

func (g *GGSN) setDraining(on bool, f func(*ggsn.Engine, time.Time, *ggsn.Output)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.do(f) {
		return errNotRunning
	}
	g.draining = on
	return nil
}

var questions = []role.Question{
	role.Answer("contexts", (*GGSN).contexts),
	role.Answer("peers", (*GGSN).peers),
	role.Follow("delete", (*GGSN).remove),
	role.Follow("close-records", (*GGSN).closeRecords),
	role.Follow("drain", (*GGSN).drain),
	role.Follow("undrain", (*GGSN).undrain),
}
