// Copyright the Isthmus authors. SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/isthmus-net/isthmus/lab"
)

// shortFaults is a campaign that shows that all of it works. Its seed is always the same.
var shortFaults = faultsForm{
	together: true, time: time.Second,
	streams: 33, flows: 32, shorts: 50, contexts: 100, longest: 100 * time.Millisecond, settle: 300 * time.Millisecond, seed: 11,
}

// Flows, starts and what is left behind do not depend on a busy machine. Times do, and what
// a process holds so soon.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		ways []way
		draw drawFaults
	}{
		natFaultsName:   {isthmusWays, drawNAT64Faults},
		relayFaultsName: {isthmusWays, drawRelayFaults},
		ggsnFaultsName:  {ggsnWays, drawGGSNFaults},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, e := testEnvOf(t, lab.Experiment{}) // needs no peers
			form := shortFaults
			form.ways = of.ways
			kept := func() []string {
				return machineState(t, "churn0", "churn1", "steady", natFaultsName+"-off", relayFaultsName+"-off")
			}
			before := kept()
			all, err := campaigns(ctx, e, form, of.draw)
			if err != nil {
				t.Fatal(err)
			}
			if after := kept(); !slices.Equal(before, after) {
				t.Errorf("on the machine there was %q, and now there is %q", before, after)
			}
			rep := faultsReport(name, "", form, all)
			if err := rep.WriteText(t.Output()); err != nil {
				t.Fatal(err)
			}
			if err := rep.Verdict(false); err != nil {
				t.Error(err)
			}
			for _, c := range all {
				for _, f := range c.faults {
					if c.times(f.name) == 0 {
						t.Errorf("%s: %s did not happen", c.way.title, f.name)
					}
				}
			}
		})
	}
}

// What a campaign must see: octets that are lost, doubled or altered, on either side.
func TestCheckedStreams(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(sent []byte) []byte
		wrong   bool
		missing bool
	}{
		{"as it was sent", func(b []byte) []byte { return b }, false, false},
		{"an octet altered", func(b []byte) []byte { b[700] ^= 1; return b }, true, false},
		{"a segment lost", func(b []byte) []byte { return slices.Delete(b, 1000, 2440) }, true, true},
		{"a segment doubled", func(b []byte) []byte { return slices.Insert(b, 1000, b[500:1000]...) }, true, true},
		{"the end lost", func(b []byte) []byte { return b[:len(b)-1] }, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var sent []byte
			const place = 65000
			for n := uint64(0); n < 4; n++ {
				sent = append(sent, checkedOctets(place+n*checkedBlock, checkedBlock)...)
			}
			e := &streamEnd{}
			arrived := tt.change(slices.Clone(sent))
			for part := range slices.Chunk(arrived, checkedBlock) {
				e.check(place, part)
			}
			other := &streamEnd{sent: uint64(len(sent))}
			x := &stream{ends: [2]*streamEnd{e, other}}
			if (x.wrong() > 0) != tt.wrong || (x.fault() != nil) != tt.missing {
				t.Errorf("%d octets wrong, and %v", x.wrong(), x.fault())
			}
		})
	}
}

// When a UDP flow is lost.
func TestFlowFault(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	calmed := start.Add(50 * time.Second)
	packet := func(sent, back time.Duration) flowPacket {
		p := flowPacket{sent: start.Add(sent)}
		if back > 0 {
			p.back = start.Add(back)
		}
		return p
	}
	early, late := packet(0, time.Second), packet(52*time.Second, 53*time.Second)
	middle, unanswered := packet(26*time.Second, 27*time.Second), packet(51*time.Second, 0)
	for _, tt := range []struct {
		name    string
		packets []flowPacket
		moved   int
		lost    bool
	}{
		{"one packet unanswered", []flowPacket{early, middle, unanswered, late}, 0, false},
		{"no answer at the end", []flowPacket{early, middle, unanswered}, 0, true},
		{"silent for long", []flowPacket{early, late}, 0, true},
		{"another mapping", []flowPacket{early, middle, late}, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := &flow{packets: tt.packets, moved: tt.moved}
			if err := f.fault(calmed); (err != nil) != tt.lost {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestLeftBehind(t *testing.T) {
	before := []string{"device lo", "route to 2001:db8::/32", "address 192.0.2.1"}
	after := []string{"device lo", "device nat64", "address 192.0.2.1", "address 192.0.2.1"}
	if diff := cmp.Diff([]string{"device nat64", "address 192.0.2.1"}, left(before, after)); diff != "" {
		t.Errorf("left behind (-want +got):\n%s", diff)
	}
}

func TestFaultsForm(t *testing.T) {
	f, err := faultsFormOf(&lab.Env{Time: time.Minute, Seed: 7, Ways: []string{"off", "xdp"}}, isthmusWays)
	if err != nil || f.time != time.Minute || f.seed != 7 || !slices.Equal(f.ways, []way{wayUser, wayXDP}) {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := faultsFormOf(&lab.Env{}, isthmusWays); err != nil || f.time != faultsTime || f.seed == 0 || len(f.ways) != 3 {
		t.Errorf("by default %+v, %v", f, err)
	}
	if _, err := faultsFormOf(&lab.Env{Ways: []string{"kernel"}}, isthmusWays); err == nil {
		t.Error("a way without an Isthmus was taken")
	}
}
