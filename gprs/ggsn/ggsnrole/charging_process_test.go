// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package ggsnrole

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/isthmus-net/isthmus/gprs/gtp"
	"github.com/isthmus-net/isthmus/internal/testutil/program"
)

// chargedVolume is with how many octets a record is closed here.
const chargedVolume = 1000

// TestChargingKilled has the records of a context be what it has carried, over a restart in good order; a kill takes
// what was in the open one alone, doubles nothing, and leaves the numbers of records without a gap.
func TestChargingKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "charging.jsonl")
	c := newCore(t, fmt.Sprintf("charging_file = %q", file), fmt.Sprintf("pool4 = [\"10.45.0.0/16\"]\naccounting = \"file\"\ncharging_volume = %d\n", chargedVolume))
	c.ns.Do(t, func() error { // to where nobody answers
		return netlink.RouteAdd(&netlink.Route{Dst: &net.IPNet{IP: host4.AsSlice(), Mask: net.CIDRMask(32, 32)}, Gw: sgsnAddr[false].AsSlice()})
	})
	p := c.serve(t)
	killed := c.open(t, 1, false)
	c.carry(t, &killed, 35)
	carried := c.counts(t, &killed)
	before := charges(t, file)
	if open := carried.minus(sumOf(before, killed.ChargingID.Value)); len(before) < 3 || open.octets() >= chargedVolume {
		t.Errorf("%d records, and %+v in the open one", len(before), open)
	}
	c.manager.End(t, p, syscall.SIGKILL)
	p = c.serve(t)
	if after := charges(t, file); len(after) != len(before) {
		t.Errorf("a kill has made %d records of %d", len(after), len(before))
	}
	r := c.open(t, 2, false)
	c.carry(t, &r, 15)
	program.Commands(t, c.socket,
		program.Row{Args: "ggsn close-records --imsi 240010000000002", Want: "charging records closed: 1"},
		program.Row{Args: "ggsn close-records --apn other", Status: 1, Want: "there is no such context"},
		program.Row{Args: "ggsn close-records", Status: 1, Want: "say which contexts"},
	)
	c.carry(t, &r, 15)
	c.manager.End(t, p, syscall.SIGTERM)
	p = c.serve(t)
	c.carry(t, &r, 15)
	carried = c.counts(t, &r)
	c.remove(t, &r)
	list := charges(t, file)
	if got := sumOf(list, r.ChargingID.Value); got != carried || !list[len(list)-1].Ended() {
		t.Errorf("records have %+v, the context has carried %+v", got, carried)
	}
	for i := range list {
		if list[i].LocalNumber != uint64(i+1) {
			t.Errorf("record %d has the number %d", i+1, list[i].LocalNumber)
		}
	}
	c.manager.End(t, p, syscall.SIGTERM)
}

// octetCount is what was carried from a terminal and to it.
type octetCount struct{ up, down uint64 }

func (n octetCount) octets() uint64                { return n.up + n.down }
func (n octetCount) minus(m octetCount) octetCount { return octetCount{n.up - m.up, n.down - m.down} }

// sumOf adds up the volumes of all records of a context.
func sumOf(list []Charge, chargingID uint32) (sum octetCount) {
	for i := range list {
		for _, v := range list[i].Volumes {
			if list[i].ChargingID == chargingID {
				sum.up, sum.down = sum.up+v.UpOctets, sum.down+v.DownOctets
			}
		}
	}
	return sum
}

// carry has packets of a terminal carried, and one back behind them, so that all are counted then.
func (c *core) carry(t *testing.T, r *gtp.CreateResponse, packets int) {
	t.Helper()
	for range packets {
		b, err := gtp.Encapsulate(nil, &gtp.Header{Version: gtp.V1, Type: gtp.TypeGPDU, TEID: r.TEIDData.Value}, udp(r.EndUserAddress.Value.IPv4, host4, 64, 72))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.user.WriteToUDPAddrPort(b, netip.AddrPortFrom(nodeAddr[false], gtp.PortUser)); err != nil {
			t.Fatal(err)
		}
	}
	if !c.carried(t, r) {
		t.Fatal("nothing is carried back")
	}
}

// counts are what a context has carried, as the node shows it.
func (c *core) counts(t *testing.T, r *gtp.CreateResponse) octetCount {
	t.Helper()
	_, text := program.Call(t, "ggsn", "contexts", "--json", "--address", r.EndUserAddress.Value.IPv4.String(), "--socket", c.socket)
	var all Contexts
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all.Contexts) != 1 {
		t.Fatalf("%v\n%s", err, text)
	}
	return octetCount{all.Contexts[0].UpOctets, all.Contexts[0].DownOctets}
}
