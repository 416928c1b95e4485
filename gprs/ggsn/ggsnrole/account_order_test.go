// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-net/isthmus/gprs/ggsn"
	"github.com/isthmus-net/isthmus/internal/radius"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
	"github.com/isthmus-net/isthmus/lab/peers"
)

// ofSession tells of a session by its Charging-ID.
func (a *accountant) ofSession(id uint32, kind ggsn.EventKind) {
	e := told(kind, ggsn.EndPeer)
	e.Context.ChargingID = id
	a.add([]ggsn.Event{e})
}

// outage has no server answer for a while.
func (a *accountant) outage(now *time.Time, d time.Duration) {
	for end := now.Add(d); now.Before(end); *now = now.Add(time.Second) {
		var out radius.Output
		a.client.Tick(*now, &out)
		a.judge(out.Answers, *now)
		a.send(*now, &out)
	}
}

// hears has a server answer all for a while, but a session, and returns in which order it was told what.
func (a *accountant) hears(now *time.Time, d time.Duration, hates string) (list []string) {
	for end := now.Add(d); now.Before(end); *now = now.Add(time.Second) {
		var out radius.Output
		a.client.Tick(*now, &out)
		for len(out.UDP)+len(out.Answers) > 0 {
			sent := out
			out = radius.Output{}
			for _, d := range sent.UDP {
				attributes, _ := radius.ParseAttributes(d.Payload[20:])
				status, _ := attributes.FindInteger(radius.AcctStatusType)
				if id := ids(d.Payload); id != hates {
					list = append(list, fmt.Sprintf("%d:%s", status, id))
					a.client.HandleUDP(d.Socket, accountingServer, answerTo(d.Payload), *now, &out)
				}
			}
			a.judge(sent.Answers, *now)
			a.send(*now, &out)
		}
		a.send(*now, &out)
	}
	return list
}

// TestAccountingOnInOrder tells Accounting-On behind what an earlier process has left and before what this one adds,
// when a server is back, however often each was tried in vain: it ends what servers have open (RFC 2866 section 5.1).
func TestAccountingOnInOrder(t *testing.T) {
	for before := range 12 { // in vain, before a session begins and then
		for then := range 3 {
			a := newAccountant(t)
			now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
			a.ofSession(1, ggsn.ContextCreated)
			a.ofSession(2, ggsn.ContextCreated)
			a.whole(radius.AcctOn)
			a.outage(&now, time.Duration(before)*13*time.Second)
			a.ofSession(3, ggsn.ContextCreated)
			a.outage(&now, time.Duration(then)*20*time.Second)
			got, at := a.hears(&now, 3*time.Minute, ""), map[string]int{}
			for i, one := range got {
				at[one] = i
			}
			on := len(got) - 2
			if len(at) != 4 || at["7:0"] != on || at["1:1"] > on || at["1:2"] > on || at["1:3"] < on {
				t.Errorf("after %d and %d tries the server is told %v", before, then, got)
			}
			if left := a.spool.Info().Records; left != 0 {
				t.Errorf("after %d and %d tries %d records are left", before, then, left)
			}
		}
	}
}

// TestAccountingOnHated has no record that no server answers hold up Accounting-On, and what follows that.
func TestAccountingOnHated(t *testing.T) {
	a := newAccountant(t)
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	a.ofSession(15, ggsn.ContextCreated)
	a.ofSession(15, ggsn.ContextDeleted)
	a.whole(radius.AcctOn)
	a.ofSession(3, ggsn.ContextCreated)
	got := a.hears(&now, 5*time.Minute, "F")
	if len(got) < 2 || got[len(got)-1] != "1:3" || got[len(got)-2] != "7:0" || len(got) > 4 || len(a.aside) != 1 {
		t.Errorf("the server is told %v, and %d are set aside", got, len(a.aside))
	}
	if got = a.hears(&now, asideTime+time.Minute, ""); fmt.Sprint(got) != "[1:F 2:F]" || a.spool.Info().Records != 0 {
		t.Errorf("the server is told %v", got)
	}
}

// TestAccountingOnUnanswered has an Accounting-On that no server answers hold up nothing: it is set aside when they
// answer what is behind it, also where another record before it is hated as well, and tried again in its time.
func TestAccountingOnUnanswered(t *testing.T) {
	for before, want := range map[bool]string{false: "[7:0]", true: "[2:0 7:0]"} {
		a := newAccountant(t)
		now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
		if before {
			a.ofSession(0, ggsn.ContextDeleted)
		}
		a.whole(radius.AcctOn)
		a.ofSession(1, ggsn.ContextCreated)
		a.ofSession(2, ggsn.ContextCreated)
		got := a.hears(&now, 4*time.Minute, "0")
		n := len(got)
		slices.Sort(got) // one of them finds out that they are answered, and is told again
		if fmt.Sprint(slices.Compact(got)) != "[1:1 1:2]" || n > 3 || len(a.aside) != a.spool.Info().Records || len(a.aside) == 0 {
			t.Errorf("the server is told %v, and %d are set aside", got, len(a.aside))
		}
		if got = a.hears(&now, asideTime+time.Minute, ""); fmt.Sprint(got) != want || a.spool.Info().Records != 0 {
			t.Errorf("the server is told %v", got)
		}
	}
}

// TestToldAsBegun has servers told of the end of a session of whose beginning they were, whatever a reload or another
// start says of its access point since, and not of one that began untold.
func TestToldAsBegun(t *testing.T) {
	for _, then := range []string{"none", "file"} {
		for by, restart := range map[string]bool{"reload": false, "restart": true} {
			t.Run(then+" by a "+by, func(t *testing.T) { testToldAsBegun(t, then, restart) })
		}
	}
}

func testToldAsBegun(t *testing.T, then string, restart bool) {
	c, _ := newAccountingCore(t, nodeAddr[false].String(), "")
	file := filepath.Join(t.TempDir(), "detail")
	c.startAccounting(t, peers.FreeRADIUS{Listen: netip.AddrPortFrom(nodeAddr[false], 1812), Secret: "xyzzy5461", Detail: file})
	p := c.serve(t)
	change := func(from, to string) {
		text, err := os.ReadFile(c.path)
		if err != nil {
			t.Fatal(err)
		}
		writePrivate(t, c.path, strings.Replace(string(text), fmt.Sprintf("accounting = %q", from), fmt.Sprintf("accounting = %q", to), 1))
		if restart {
			c.manager.End(t, p, syscall.SIGTERM)
			p = c.serve(t)
		} else if status, said := program.Call(t, "reload", "--socket", c.socket); status != 0 {
			t.Fatal(said)
		}
	}
	first := c.open(t, 1, false)
	change("radius", then)
	untold := c.open(t, 2, false)
	c.remove(t, &first)
	change(then, "radius")
	c.remove(t, &untold)
	third := c.open(t, 3, false)
	c.remove(t, &third)
	var got []string
	await(t, func() bool {
		got = nil
		for _, one := range detail(t, file) {
			got = append(got, one["Acct-Status-Type"]+strings.TrimPrefix(one["3GPP-IMSI"], "24001000000000"))
		}
		return slices.Contains(got, "Stop3")
	})
	slices.Sort(got)
	got = slices.Compact(got) // who ends before he hears an answer tells again
	if want := "[Accounting-On Start1 Start3 Stop1 Stop3]"; fmt.Sprint(got) != want {
		t.Errorf("told %v, want %s", got, want)
	}
}
